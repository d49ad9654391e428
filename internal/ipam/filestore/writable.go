package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Writable returns an error if no reservation of a network can be added below dir, the directory of
// all networks. Missing directories are no error if they can be created. Writable changes nothing.
func Writable(dir, network string) error {
	path, err := nearest(filepath.Join(dir, network))
	if err != nil {
		return err
	}
	if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	// File systems without these counters report 0 for both.
	if st.Blocks > 0 && st.Bfree == 0 || st.Files > 0 && st.Ffree == 0 {
		return &fs.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
	}
	return nil
}

// nearest returns path or its nearest existing parent.
func nearest(path string) (string, error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		parent := filepath.Dir(path)
		switch {
		case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return "", fmt.Errorf("%s is not a directory", path)
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist) || parent == path:
			return "", &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		path = parent
	}
}
