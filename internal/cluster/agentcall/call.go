package agentcall

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// ErrUnreachable reports that no agent listens on the socket. Use errors.Is.
var ErrUnreachable = errors.New("no agent is listening")

const (
	// maxMessage is the maximum length of a request or a reply, in bytes.
	maxMessage = 4 << 20
	// patience limits the time to read a request and to write a reply.
	patience = 10 * time.Second
)

// Call sends a request to the agent at a socket and waits for the reply as long as ctx allows. A
// request without a deadline gets the deadline of ctx. The error wraps [ErrUnreachable] if no agent
// listens there, and the cause of ctx if it has ended; an error of the agent is a [*cni.Error] and
// comes with the reply.
func Call(ctx context.Context, socket string, q Request) (*Reply, error) {
	if err := unixsocket.CheckPath(socket); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if unixsocket.Unreachable(err) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if end, ok := ctx.Deadline(); ok && q.Deadline.IsZero() {
		q.Deadline = end
	}
	r := new(Reply)
	if err = send(c, q); err == nil {
		err = receive(c, r)
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: no reply of the agent: %w", socket, context.Cause(ctx))
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the agent closed the connection without a reply", socket)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", socket, err)
	case r.Error != nil:
		return r, r.Error
	}
	return r, nil
}

// Handler answers a request. The context ends with the deadline of the request, and when the client
// closes the connection.
type Handler func(context.Context, *Request) *Reply

// Serve answers requests until the listener is closed, and returns when all are answered. Clients
// that are neither root nor the user of this process get no reply. See [unixsocket.Listen].
func Serve(ctx context.Context, l *net.UnixListener, log *slog.Logger, h Handler) error {
	return unixsocket.Accept(l, log, func(c *net.UnixConn, busy func()) error {
		defer c.Close()
		return serve(ctx, c, busy, h)
	})
}

func serve(ctx context.Context, c *net.UnixConn, busy func(), h Handler) error {
	if err := unixsocket.OnlyRoot(c, "the agent of the cluster"); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	q, r := new(Request), new(Reply)
	err := receive(c, q)
	busy()
	switch {
	case errors.Is(err, io.EOF): // a process looks whether an agent listens
		return nil
	case err != nil:
		r = Fail(cni.Errorf(cni.CodeDecodingFailure, "request: %w", err))
	default:
		unixsocket.WhileConnected(ctx, c, func(ctx context.Context) {
			if !q.Deadline.IsZero() {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, q.Deadline)
				defer cancel()
			}
			r = h(ctx, q)
		})
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return send(c, r)
}

// Fail returns a reply with an error. An error without a code gets [cni.CodeTryAgainLater].
func Fail(err error) *Reply {
	e := *cni.AsError(err)
	if e.Code == cni.CodeInternal {
		e.Code = cni.CodeTryAgainLater
	}
	return &Reply{Error: &e}
}

// send writes a message as a line.
func send(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// receive reads a line into v. The error is io.EOF if the peer sent nothing.
func receive(r io.Reader, v any) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxMessage)).ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return io.EOF
	case errors.Is(err, io.EOF) && len(line) < maxMessage:
		return io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the message is longer than %d bytes", maxMessage)
	case err != nil:
		return err
	}
	return json.Unmarshal(line, v)
}
