package rpc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Listener accepts connections. Close leaves its socket in place.
type Listener struct{ unix *net.UnixListener }

// Listen listens at a path, and makes its directory. It replaces the socket of an earlier daemon;
// the caller prevents that two processes do so at the same time. The error wraps [unix.EADDRINUSE]
// if a daemon answers there.
func Listen(path string) (*Listener, error) {
	if err := checkLength(path); err != nil {
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
	c, dialErr := dial(path)
	if dialErr == nil {
		c.Close()
	}
	if !errors.Is(dialErr, ErrUnreachable) {
		return nil, fmt.Errorf("somebody answers on %s: %w", path, unix.EADDRINUSE)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return listen(path)
}

func listen(path string) (*Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Listener{l}, nil
}

// Inherited listens on a socket that another process has opened, systemd or an earlier daemon, and
// closes the file.
func Inherited(f *os.File) (*Listener, error) {
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
	return &Listener{u}, nil
}

// Close ends [Server.Serve].
func (l *Listener) Close() error { return l.unix.Close() }

// File returns the socket for another process.
func (l *Listener) File() (*os.File, error) { return l.unix.File() }
