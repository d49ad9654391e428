package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// PluginDir is a plugin directory.
type PluginDir struct {
	Path     string `json:"path"`
	NoExec   bool   `json:"noexec,omitzero"` // its mount forbids programs
	Mount    string `json:"mount,omitzero"`  // the mount point, if NoExec
	UID      int    `json:"uid,omitzero"`
	Writable bool   `json:"writable,omitzero"` // by all users
	Missing  bool   `json:"missing,omitzero"`
}

// PluginFile is a file in a plugin directory.
type PluginFile struct {
	Dir     string      `json:"dir"`
	Name    string      `json:"name"`
	Mode    fs.FileMode `json:"mode"`
	UID     int         `json:"uid,omitzero"`
	Module  string      `json:"module,omitzero"`  // of Go
	Version string      `json:"version,omitzero"` // of the module, or the revision of its source
	Sum     string      `json:"sum,omitzero"`     // of the content
	Damage  string      `json:"damage,omitzero"`  // why the kernel cannot run it
}

func (f PluginFile) path() string { return filepath.Join(f.Dir, f.Name) }

type readPlugins struct {
	files []PluginFile
	dirs  []PluginDir
}

// readPlugins reads the plugin directories.
func (s *State) readPlugins(ctx context.Context) (r readPlugins, err error) {
	programs := map[fileID]program{}
	for _, dir := range s.Options.PluginDirs {
		d, entries, err := readPluginDir(dir)
		if err != nil {
			return r, err
		}
		r.dirs = append(r.dirs, d)
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			f, ok, err := readPluginFile(dir, e.Name(), programs)
			if err != nil {
				return r, err
			}
			if ok {
				r.files = append(r.files, f)
			}
		}
	}
	return r, nil
}

func readPluginDir(dir string) (d PluginDir, entries []fs.DirEntry, err error) {
	d.Path = dir
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		d.Missing = true
		return d, nil, nil
	}
	if err != nil {
		return d, nil, err
	}
	d.UID, d.Writable = uidOf(info), info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return d, nil, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if d.NoExec = st.Flags&unix.ST_NOEXEC != 0; d.NoExec {
		d.Mount = mountOf(dir)
	}
	entries, err = os.ReadDir(dir)
	return d, entries, err
}

// mountOf returns the mount point of a directory.
func mountOf(dir string) string {
	var here unix.Stat_t
	if unix.Stat(dir, &here) != nil {
		return dir
	}
	for dir != "/" {
		var above unix.Stat_t
		if unix.Stat(filepath.Dir(dir), &above) != nil || above.Dev != here.Dev {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// fileID identifies the content of files that share it.
type fileID struct{ dev, inode uint64 }

// program is what the content of a file says.
type program struct{ module, version, sum, damage string }

// notPrograms are the names of files in plugin directories that are no plugins.
var notPrograms = []string{".md", ".txt", ".before-tenon", ".distrib", ".tenon-new"}

// largestPlugin limits the size of files that are read, in bytes.
const largestPlugin = 256 << 20

func readPluginFile(dir, name string, known map[fileID]program) (f PluginFile, ok bool, err error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(name, ".") ||
		strings.ToUpper(name) == name || slices.Contains(notPrograms, filepath.Ext(name)) {
		return f, false, nil // a dangling link counts as missing
	}
	f = PluginFile{Dir: dir, Name: name, Mode: info.Mode().Perm(), UID: uidOf(info)}
	id := idOf(info)
	p, read := known[id]
	if !read {
		if info.Size() > largestPlugin {
			return f, true, nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return f, false, err
		}
		p = examine(content)
		known[id] = p
	}
	f.Module, f.Version, f.Sum, f.Damage = p.module, p.version, p.sum, p.damage
	return f, true, nil
}

// uidOf returns the owner of a file.
func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return 0
}

func idOf(info fs.FileInfo) fileID {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(st.Dev), st.Ino}
	}
	return fileID{}
}

// examine reads the build information and the header of a program.
func examine(content []byte) program {
	sum := sha256.Sum256(content)
	p := program{sum: hex.EncodeToString(sum[:6]), damage: damageOf(content)}
	p.module, p.version = moduleOf(content)
	if _, revision, ok := bytes.Cut(content, []byte("\nbuild\tvcs.revision=")); ok &&
		p.version == "(devel)" && len(revision) >= 12 {
		p.version = string(revision[:12])
	}
	return p
}

// moduleLine is the line in which Go records the main module of a program and its version.
const moduleLine = `^([a-z0-9./_-]+\.[a-z]+/[^\s"]+)\t(v[0-9][^\s"]*|\(devel\))`

// moduleOf returns the main module of a program and its version. Programs that search for such
// lines, as this one does, contain the beginning of one as a constant.
func moduleOf(content []byte) (module, version string) {
	const longest = 300
	line := regexp.MustCompile(moduleLine) // not when the program starts
	for {
		_, rest, ok := bytes.Cut(content, []byte("\nmod\t"))
		if !ok {
			return "", ""
		}
		if m := line.FindSubmatch(rest[:min(longest, len(rest))]); m != nil {
			return string(m[1]), string(m[2])
		}
		content = rest
	}
}

// machines are the values of e_machine (elf(5)) by GOARCH.
var machines = map[string]uint16{
	"386": 3, "mips": 8, "mipsle": 8, "mips64": 8, "mips64le": 8, "ppc64": 21, "ppc64le": 21,
	"s390x": 22, "arm": 40, "amd64": 62, "arm64": 183, "riscv64": 243, "loong64": 258,
}

// damageOf returns why the kernel cannot run a program, "" if it can.
func damageOf(b []byte) string {
	const headerSize = 64 // of 64-bit files, 52 of 32-bit ones
	switch {
	case len(b) == 0:
		return "the file is empty"
	case bytes.HasPrefix(b, []byte("#!")):
		return ""
	case !bytes.HasPrefix(b, []byte("\x7fELF")):
		return "the file is not a program"
	case len(b) < headerSize:
		return "the file is truncated"
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if b[5] == 2 { // EI_DATA
		order = binary.BigEndian
	}
	if machine := order.Uint16(b[18:]); machine != machines[runtime.GOARCH] &&
		!(runtime.GOARCH == "amd64" && machine == machines["386"]) {
		for name, m := range machines {
			if m == machine {
				return fmt.Sprintf("the program is for %s, this host is %s", name, runtime.GOARCH)
			}
		}
		return "the program is for another architecture than " + runtime.GOARCH
	}
	if end := endOfSegments(b, order); end > uint64(len(b)) {
		return fmt.Sprintf("the file is truncated: %d of %d bytes", len(b), end)
	}
	return ""
}

// endOfSegments returns the end of the last segment of a 64-bit ELF file.
func endOfSegments(b []byte, order binary.ByteOrder) (end uint64) {
	if b[4] != 2 { // EI_CLASS
		return 0
	}
	at, size, n := order.Uint64(b[32:]), uint64(order.Uint16(b[54:])), uint64(order.Uint16(b[56:]))
	for i := range n {
		h := at + i*size
		if h+40 > uint64(len(b)) || h+40 < h {
			return h + 40
		}
		end = max(end, order.Uint64(b[h+8:])+order.Uint64(b[h+32:]))
	}
	return end
}
