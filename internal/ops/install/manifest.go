package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
)

// ManifestPath is the path of the list of installed files, relative to the prefix of an installation.
const ManifestPath = "share/tenon/installed-files"

// manifest is the list of the files that packaging/install.sh installed. Lines are
// "plugins DIR", "directory PATH" for a directory that the script created, and "file SHA256 PATH".
type manifest struct {
	pluginDirs  []string
	directories []string
	files       []installedFile
}

type installedFile struct{ sum, path string }

// readManifest returns an empty manifest if there is no file.
func readManifest(path string) (m manifest, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return m, ioFailure(err, fs.ErrNotExist)
	}
	for line := range strings.Lines(string(text)) {
		if err := m.parse(strings.TrimSuffix(line, "\n")); err != nil {
			return manifest{}, cni.Errorf(cni.CodeIOFailure, "%s: %w", path, err)
		}
	}
	return m, nil
}

func (m *manifest) parse(line string) error {
	kind, path, _ := strings.Cut(line, " ")
	if kind == "#" {
		return nil
	}
	var sum string
	if kind == "file" {
		sum, path, _ = strings.Cut(path, " ")
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("unknown line %q", line)
	}
	switch kind {
	case "plugins":
		m.pluginDirs = append(m.pluginDirs, path)
	case "directory":
		m.directories = append(m.directories, path)
	case "file":
		m.files = append(m.files, installedFile{sum, path})
	default:
		return fmt.Errorf("unknown line %q", line)
	}
	return nil
}

// installed adds the files and directories of the manifest to the plan, the list itself last.
func (p *Plan) installed(m manifest) error {
	if len(m.files)+len(m.directories)+len(m.pluginDirs) == 0 {
		return nil
	}
	for _, f := range m.files {
		switch content, err := os.ReadFile(f.path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return ioFailure(err)
		case hash(content) == f.sum:
			p.Files = append(p.Files, f.path)
		default:
			p.Changed = append(p.Changed, f.path)
		}
	}
	p.Files = append(p.Files, p.request.Manifest)
	for _, dir := range m.directories {
		if _, err := os.Lstat(dir); err == nil {
			p.Directories = append(p.Directories, dir)
		}
	}
	slices.Sort(p.Directories)
	slices.Reverse(p.Directories) // children first
	p.Units = unitsInUse(m.files, systemdDirs)
	return nil
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// RemoveFiles removes the files that the install script installed, and the directories that it
// created unless they contain other files. It returns the directories with such files. Call it last:
// the running program is one of the files.
func (p *Plan) RemoveFiles() (remaining []string, err error) {
	for _, path := range p.Files {
		if err := ioFailure(os.Remove(path), fs.ErrNotExist); err != nil {
			return nil, err
		}
	}
	for _, dir := range p.Directories {
		err := os.Remove(dir)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			if !slices.ContainsFunc(remaining, func(r string) bool {
				return strings.HasPrefix(r, dir+"/")
			}) {
				remaining = append(remaining, dir)
			}
			continue
		}
		if err := ioFailure(err, fs.ErrNotExist); err != nil {
			return remaining, err
		}
	}
	return remaining, nil
}
