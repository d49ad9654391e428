package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/dhcp"
)

type handler = func(context.Context, *dhcp.Request) *dhcp.Reply

// Server answers requests of Tenon's plugin and of the upstream plugin.
type Server struct {
	// Handle answers a request. Its context ends with the context of Serve, and when the client
	// closes the connection.
	Handle handler
	Log    *slog.Logger
}

const (
	// atOnce is the number of clients that are served at the same time; others wait.
	atOnce = 1024
	// patience limits the time to read a request and to write an answer.
	patience = 10 * time.Second
	// maxRequest is the maximum length of a request, in bytes.
	maxRequest = 4 << 20
	// acceptAgain is the time after which Serve retries accept(2) even if no client leaves,
	// because other code or processes can free descriptors too.
	acceptAgain = time.Second
	// logEvery is the minimum time between log lines for errors of accept(2).
	logEvery = time.Minute
)

// Serve answers requests until the listener is closed, and returns when all are answered. While
// file descriptors or memory are short, clients wait in the socket's queue.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, atOnce)
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
				s.Log.Error("cannot accept clients; they wait", "error", err)
			}
			select {
			case <-left:
			case <-time.After(acceptAgain):
			}
			continue
		}
		all.Go(func() {
			if err := s.serve(ctx, accepted); err != nil {
				s.Log.Warn("client", "error", err)
			}
			<-slots
			select {
			case left <- struct{}{}:
			default:
			}
		})
	}
}

// short reports whether accept(2) failed for lack of a resource, or because the client has left.
func short(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED,
	}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// connectLine is the first line of a client of net/rpc over HTTP.
const connectLine = "CONNECT /_goRPC_ HTTP/1.0"

// serve answers a client, and closes the connection.
func (s *Server) serve(ctx context.Context, accepted *net.UnixConn) error {
	c := dhcp.NewConn(accepted)
	defer c.Close()
	if err := trusted(accepted); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	line, err := c.Line(dhcp.MaxGreeting)
	switch {
	case err != nil:
		return err
	case string(line) == connectLine:
		return s.serveUpstream(ctx, c)
	case string(line) != dhcp.Greeting:
		_, err := c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
		return err
	}
	if _, err := c.Write([]byte(dhcp.Greeting + "\n")); err != nil {
		return err
	}
	q := new(dhcp.Request)
	if q.NS, err = c.Receive(maxRequest, q); err != nil {
		return err
	}
	r := s.handle(ctx, c, q)
	if r.Listener != nil {
		defer r.Listener.Close()
	}
	return c.Send(r, r.Listener)
}

// trusted returns an error unless the peer is root or the user of the daemon.
func trusted(c *net.UnixConn) error {
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
		return fmt.Errorf("user %d is not allowed to use the DHCP daemon: only root is", peer.Uid)
	}
	return nil
}

// serveUpstream answers CONNECT, skips the headers, and serves net/rpc on the connection.
func (s *Server) serveUpstream(ctx context.Context, c *dhcp.Conn) error {
	for more := true; more; {
		line, err := c.Line(dhcp.MaxGreeting)
		if err != nil {
			return err
		}
		more = len(bytes.TrimSpace(line)) > 0
	}
	if _, err := c.Write([]byte("HTTP/1.0 200 Connected to Go RPC\n\n")); err != nil {
		return err
	}
	serveNetRPC(ctx, c, s.Handle)
	return nil
}

// handle answers a request, and cancels it when the client closes the connection.
func (s *Server) handle(ctx context.Context, c *dhcp.Conn, q *dhcp.Request) *dhcp.Reply {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.NS != nil {
		defer q.NS.Close()
	}
	_ = c.SetDeadline(time.Time{})
	var watch sync.WaitGroup
	watch.Go(func() {
		if n, err := c.Read(make([]byte, 1)); n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	})
	r := s.Handle(ctx, q)
	_ = c.SetReadDeadline(time.Unix(1, 0))
	watch.Wait()
	_ = c.SetDeadline(time.Now().Add(patience))
	return r
}

// Listen listens at a path and creates its directory. It replaces the socket of an earlier daemon;
// the caller ensures that only one process does so at a time. The socket file remains after the
// listener is closed. The error wraps [unix.EADDRINUSE] if a daemon listens there.
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
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	c, dialErr := dhcp.Dial(path)
	if dialErr == nil {
		c.Close()
	}
	if !errors.Is(dialErr, dhcp.ErrUnreachable) {
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
