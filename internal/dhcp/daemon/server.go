package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/unixsocket"
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
	// patience limits the time to read a request and to write an answer.
	patience = 10 * time.Second
	// maxRequest is the maximum length of a request, in bytes.
	maxRequest = 4 << 20
)

// Serve answers requests until the listener is closed, and returns when all are answered.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	return unixsocket.Accept(l, s.Log, func(c *net.UnixConn, busy func()) error {
		return s.serve(ctx, c, busy)
	})
}

// connectLine is the first line of a client of net/rpc over HTTP.
const connectLine = "CONNECT /_goRPC_ HTTP/1.0"

// serve answers a client, and closes the connection.
func (s *Server) serve(ctx context.Context, accepted *net.UnixConn, busy func()) error {
	c := dhcp.NewConn(accepted)
	defer c.Close()
	if err := unixsocket.OnlyRoot(accepted, "the DHCP daemon"); err != nil {
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
		busy()
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
	busy()
	r := s.handle(ctx, c, q)
	if r.Listener != nil {
		defer r.Listener.Close()
	}
	return c.Send(r, r.Listener)
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
func (s *Server) handle(ctx context.Context, c *dhcp.Conn, q *dhcp.Request) (r *dhcp.Reply) {
	if q.NS != nil {
		defer q.NS.Close()
	}
	unixsocket.WhileConnected(ctx, c, func(ctx context.Context) { r = s.Handle(ctx, q) })
	_ = c.SetDeadline(time.Now().Add(patience))
	return r
}
