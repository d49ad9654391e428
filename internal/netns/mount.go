package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mount gives the namespace a path: it creates a file there, unless it exists, and mounts the
// namespace on it. The namespace lives as long as the mount.
func (n *NS) Mount(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unix.Mount(fdPath(os.Getpid(), n.Fd()), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount network namespace at %s: %w", path, err)
	}
	return nil
}
