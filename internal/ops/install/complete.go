package install

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
)

// Complete returns an error with [cni.CodeNotAvailable] unless all files that [Run] installs are in
// the directory, with the content of this program and of r.Programs.
func (r Request) Complete() error {
	var first os.FileInfo // a file with the content of this program
	for _, name := range r.Names {
		path := filepath.Join(r.Dir, name)
		info, err := os.Lstat(path)
		if err == nil && first != nil && os.SameFile(first, info) {
			continue
		}
		if err := expect(self, path); err != nil {
			return err
		}
		first = info
	}
	for _, p := range r.Programs {
		if err := expect(p.Path, filepath.Join(r.Dir, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// expect returns an error if the file at path differs from the one at from.
func expect(from, path string) error {
	same, err := sameContent(from, path)
	if err == nil && !same {
		err = errors.New(path + " is not from this version of Tenon")
	}
	if err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err)
	}
	return nil
}
