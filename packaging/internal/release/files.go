package release

import (
	"os"
	"path"
	"path/filepath"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
)

// Install lists the files to install for a processor. The binaries are in directory bin.
func (r *Release) Install(bin string) ([]archive.File, error) {
	files := []archive.File{
		{Path: "LICENSE", Source: filepath.Join(r.Root, "LICENSE")},
		{Path: "README.md", Source: filepath.Join(r.Root, "README.md")},
	}
	for _, program := range build.Programs() {
		files = append(files, archive.File{
			Path: "bin/" + program, Mode: 0o755, Source: filepath.Join(bin, program)})
	}
	units, err := r.directory("contrib/systemd", "lib/systemd/system")
	return append(files, units...), err
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
