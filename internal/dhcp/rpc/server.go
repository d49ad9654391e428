package rpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Server answers requests.
type Server struct {
	// Handle answers a request. Its context ends with the context of Serve, and when the client
	// hangs up.
	Handle func(context.Context, *Request) *Reply
	// Upstream serves a client of the upstream plugin, which speaks net/rpc, until it closes the
	// connection.
	Upstream func(ctx context.Context, c net.Conn, handle func(context.Context, *Request) *Reply)
	Log      *slog.Logger
}

// atOnce is how many clients are served at the same time; others wait.
const atOnce = 1024

// Serve answers until the listener is closed, and returns when all is answered. While descriptors
// or memory are short, clients wait in the queue of the socket.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, atOnce)
	left := make(chan struct{}, 1) // a client has left
	var logged time.Time
	for {
		slots <- struct{}{}
		accepted, err := l.unix.AcceptUnix()
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
			c := &conn{UnixConn: accepted}
			defer func() {
				c.Close()
				<-slots
				select {
				case left <- struct{}{}:
				default:
				}
			}()
			if err := s.serve(ctx, c); err != nil {
				s.Log.Warn("client", "error", err)
			}
		})
	}
}

// short reports whether accept(2) failed for want of a resource, or because the client has gone.
func short(err error) bool {
	for _, e := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

const (
	// acceptAgain is the time after which Serve tries again where no client leaves: descriptors are
	// also freed elsewhere, in this process or another.
	acceptAgain = time.Second
	// logEvery is the time for which Serve logs an error of accept(2) once.
	logEvery = time.Minute
)

func (s *Server) serve(ctx context.Context, c *conn) error {
	if err := c.trusted(); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	line, err := c.line(maxGreeting)
	switch {
	case err != nil:
		return err
	case string(line) == connectLine && s.Upstream != nil:
		return s.serveUpstream(ctx, c)
	case string(line)+"\n" != greeting:
		_, err := c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
		return err
	}
	if _, err := c.Write([]byte(greeting)); err != nil {
		return err
	}
	q := new(Request)
	if err := receive(c, maxRequest, q); err != nil {
		return err
	}
	q.NS = first(c.take())
	r := s.handle(ctx, c, q)
	answer, err := encode(r)
	if err != nil {
		return err
	}
	if r.Listener != nil {
		defer r.Listener.Close()
	}
	return c.send(answer, r.Listener)
}

// The first line of a client of net/rpc over HTTP, and the answer to it.
const (
	connectLine = "CONNECT /_goRPC_ HTTP/1.0"
	connected   = "HTTP/1.0 200 Connected to Go RPC"
)

// serveUpstream answers CONNECT, skips the headers, and passes the connection on.
func (s *Server) serveUpstream(ctx context.Context, c *conn) error {
	for more := true; more; {
		line, err := c.line(maxGreeting)
		if err != nil {
			return err
		}
		more = len(bytes.TrimSpace(line)) > 0
	}
	if _, err := c.Write([]byte(connected + "\n\n")); err != nil {
		return err
	}
	s.Upstream(ctx, c, s.Handle)
	return nil
}

// handle answers a request, and cancels it when the client hangs up.
func (s *Server) handle(ctx context.Context, c *conn, q *Request) *Reply {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.NS != nil {
		defer q.NS.Close()
	}
	_ = c.SetDeadline(time.Time{})
	var watch sync.WaitGroup
	watch.Go(func() {
		b := make([]byte, 1)
		if n, err := c.Read(b); n > 0 {
			c.ahead = append(b, c.ahead...) // the next request
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	})
	r := s.Handle(ctx, q)
	_ = c.SetReadDeadline(time.Unix(1, 0))
	watch.Wait()
	_ = c.SetDeadline(time.Now().Add(patience))
	return r
}
