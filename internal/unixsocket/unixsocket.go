// Package unixsocket listens on Unix sockets of Tenon's daemons and accepts their clients: only
// root may connect, clients wait while the system is short of descriptors or memory, and a request
// ends when its client leaves. It does not know what clients and daemons send each other.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is the maximum length of a socket path, in bytes (unix(7)).
const maxPath = 107

// CheckPath returns an error with the reason for a path that the kernel refuses as an invalid
// argument.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("%s: the path of a socket is limited to %d bytes, but this one has %d",
			path, maxPath, len(path))
	}
	return nil
}

// Unreachable reports whether a connection failed because no process listens at the path.
func Unreachable(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.ENOTDIR)
}

// Listen listens at a path and creates its directory. It replaces the socket of an earlier daemon;
// the caller ensures that only one process does so at a time. The socket file remains after the
// listener is closed. The error wraps [unix.EADDRINUSE] if a daemon listens there.
func Listen(path string) (*net.UnixListener, error) {
	if err := CheckPath(path); err != nil {
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
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	c, dialErr := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	if dialErr == nil {
		c.Close()
	}
	if dialErr == nil || !Unreachable(dialErr) {
		return nil, fmt.Errorf("a process listens on %s: %w", path, unix.EADDRINUSE)
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

// Inherited listens on a socket that systemd or an earlier daemon has opened, and closes the file.
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

// OnlyRoot returns an error unless the peer is root or the user of this process. daemon names the
// daemon in the error.
func OnlyRoot(c *net.UnixConn, daemon string) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d is not allowed to use %s: only root is", peer.Uid, daemon)
	}
	return nil
}

const (
	// atOnce is the number of requests that are served at the same time; others wait.
	atOnce = 1024
	// maxIdle is the number of connections without a request. Another one closes the oldest of them,
	// so that clients which send nothing do not delay the others.
	maxIdle = 256
	// acceptAgain is the time after which Accept retries accept(2) even if no client leaves,
	// because other code or processes can free descriptors too.
	acceptAgain = time.Second
	// logEvery is the minimum time between log lines for errors of accept(2).
	logEvery = time.Minute
)

// Accept calls serve for each client, in separate goroutines, until the listener is closed, and
// returns when all calls have returned. It logs their errors. serve closes the connection, and calls
// busy when it has received a request: until then, Accept may close the connection in favour of
// others. While file descriptors or memory are short, clients wait in the socket's queue.
func Accept(
	l *net.UnixListener, log *slog.Logger, serve func(c *net.UnixConn, busy func()) error,
) error {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, atOnce+maxIdle)
	waiting := &idle{log: log}
	left := make(chan struct{}, 1) // receives when a client leaves
	var logged time.Time
	for {
		slots <- struct{}{}
		accepted, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil && !short(err) {
			return err
		}
		if err != nil {
			<-slots
			if time.Since(logged) > logEvery {
				logged = time.Now()
				log.Error("cannot accept clients; they wait", "error", err)
			}
			select {
			case <-left:
			case <-time.After(acceptAgain):
			}
			continue
		}
		busy := waiting.add(accepted)
		all.Go(func() {
			err := serve(accepted, func() { busy() })
			if evicted := !busy(); err != nil && !evicted {
				log.Warn("client", "error", err)
			}
			<-slots
			select {
			case left <- struct{}{}:
			default:
			}
		})
	}
}

// idle are the connections that have not sent a request, the oldest first.
type idle struct {
	log *slog.Logger

	mu     sync.Mutex
	list   []*net.UnixConn
	logged time.Time
}

// add adds a connection, and closes the oldest one if there are too many. busy removes the connection
// and reports false if it was closed.
func (i *idle) add(c *net.UnixConn) (busy func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.list) == maxIdle {
		i.list[0].Close()
		i.list = slices.Delete(i.list, 0, 1)
		if time.Since(i.logged) > logEvery {
			i.logged = time.Now()
			i.log.Warn("closing connections of clients that send no request", "idle", maxIdle)
		}
	}
	i.list = append(i.list, c)
	return sync.OnceValue(func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		at := slices.Index(i.list, c)
		if at >= 0 {
			i.list = slices.Delete(i.list, at, at+1)
		}
		return at >= 0
	})
}

// short reports whether accept(2) failed for lack of a resource, or because the client has left.
func short(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED,
	}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// Conn is a connection to a client that sends nothing while it waits for an answer.
type Conn interface {
	io.Reader
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
}

// WhileConnected calls handle with a context that ends with ctx, and when the client closes the
// connection. It removes the deadlines of the connection.
func WhileConnected(ctx context.Context, c Conn, handle func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = c.SetDeadline(time.Time{})
	var watch sync.WaitGroup
	watch.Go(func() {
		if n, err := c.Read(make([]byte, 1)); n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	})
	handle(ctx)
	_ = c.SetReadDeadline(time.Unix(1, 0))
	watch.Wait()
	_ = c.SetDeadline(time.Time{})
}
