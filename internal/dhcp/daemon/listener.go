package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/dhcp"
)

// Listen listens at a path, and makes its directory. It replaces the socket of an earlier daemon;
// the caller prevents that two processes do so at the same time. Closing the listener leaves the
// socket in place. The error wraps [unix.EADDRINUSE] if a daemon answers there.
func Listen(path string) (*net.UnixListener, error) {
	if err := dhcp.CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l, err := listen(path)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	if info, statErr := os.Lstat(path); statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is there, and is no socket", path)
	}
	c, dialErr := dhcp.Dial(path)
	if dialErr == nil {
		c.Close()
	}
	if !errors.Is(dialErr, dhcp.ErrUnreachable) {
		return nil, fmt.Errorf("somebody answers on %s: %w", path, unix.EADDRINUSE)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return listen(path)
}

func listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Inherited listens on a socket that another process has opened, systemd or an earlier daemon, and
// closes the file.
func Inherited(f *os.File) (*net.UnixListener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("%s is not a Unix socket", f.Name())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
