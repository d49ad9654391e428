package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

const (
	stagingPrefix = ".tenon-install-"
	lockName      = ".tenon-install.lock"
)

// stage creates a subdirectory of a plugin directory, in which Run creates and tests files under
// their final names, because a plugin takes its name from its file. It waits until other
// installations into the directory have ended, and removes the subdirectories of killed ones. The
// caller must call end.
func stage(ctx context.Context, dir string) (staging string, end func() error, err error) {
	lock, err := statefile.TakeLock(ctx, filepath.Join(dir, lockName), statefile.Exclusive)
	if err != nil {
		return "", nil, cni.Errorf(cni.CodeIOFailure, "plugin directory: %w", err)
	}
	for _, path := range stages(dir) {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err == nil {
		staging, err = os.MkdirTemp(dir, stagingPrefix)
	}
	if err != nil {
		lock.Release()
		return "", nil, cni.Errorf(cni.CodeIOFailure, "plugin directory: %w", err)
	}
	return staging, func() error {
		defer lock.Release()
		return ioFailure(os.RemoveAll(staging))
	}, nil
}

// remains returns what killed installations left in a plugin directory.
func remains(dir string) []string {
	paths := stages(dir)
	if lock := filepath.Join(dir, lockName); exists(lock) {
		paths = append(paths, lock)
	}
	return paths
}

// stages returns the subdirectories of all installations into a plugin directory.
func stages(dir string) (paths []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // Run and the removal report it
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagingPrefix) && e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
