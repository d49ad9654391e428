package release

import (
	"bytes"
	"os"
	"path"
	"path/filepath"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
)

// Write writes an artefact with that name and returns the name.
func (r *Release) Write(name string, content []byte) (string, error) {
	return name, os.WriteFile(filepath.Join(r.Out, name), content, 0o644)
}

// WriteTarGz writes an artefact with that name, an archive of files below directory top, and
// returns the name.
func (r *Release) WriteTarGz(name, top string, files []archive.File) (string, error) {
	var b bytes.Buffer
	if err := archive.WriteTarGz(&b, top, r.Time, files); err != nil {
		return "", err
	}
	return r.Write(name, b.Bytes())
}

// Install returns the part of the release for a processor, with the files to install. The binaries
// are in directory bin.
func (r *Release) Install(arch build.Arch, bin string, m modules.Set) (Target, error) {
	files := []archive.File{
		{Path: "LICENSE", Source: filepath.Join(r.Root, "LICENSE")},
		{Path: "README.md", Source: filepath.Join(r.Root, "README.md")},
		{Path: "THIRD-PARTY-LICENSES", Data: m.Notices()},
	}
	for _, program := range build.Programs() {
		files = append(files, archive.File{
			Path: "bin/" + program, Mode: 0o755, Source: filepath.Join(bin, program)})
	}
	units, err := r.directory("contrib/systemd", "lib/systemd/system")
	return Target{Arch: arch, Bin: bin, Modules: m, Files: append(files, units...)}, err
}

// directory lists the files of a directory of the repository.
func (r *Release) directory(dir, to string) (files []archive.File, err error) {
	entries, err := os.ReadDir(filepath.Join(r.Root, dir))
	for _, e := range entries {
		files = append(files, archive.File{
			Path: path.Join(to, e.Name()), Source: filepath.Join(r.Root, dir, e.Name())})
	}
	return files, err
}
