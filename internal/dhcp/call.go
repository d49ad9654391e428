package dhcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/internal/trace"
)

// greetingTime limits the wait for the daemon's greeting.
const greetingTime = 10 * time.Second

// maxReply is the longest reply that a client reads, in bytes.
const maxReply = 64 << 20

// Call sends a request to the daemon at a socket. The error wraps ErrUnreachable if no daemon
// listens there; [Reply.Err] returns the error of the daemon.
func Call(ctx context.Context, socket string, q Request) (r *Reply, err error) {
	wait := trace.From(ctx).Waiting("event", "answer of the DHCP daemon")
	defer func() { wait.End(err) }()
	c, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer c.until(ctx)()
	ours, err := c.greet(ctx)
	if err == nil && !ours {
		return callUpstream(ctx, socket, q)
	}
	if err == nil {
		r, err = c.call(q)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, errors.Join(context.Cause(ctx), err))
	}
	return r, nil
}

// until interrupts reads and writes when a context ends, until stop is called.
func (c *Conn) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// greet reports whether the daemon speaks this protocol.
func (c *Conn) greet(ctx context.Context) (ours bool, err error) {
	short, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	defer c.until(short)()
	// A daemon that refuses the client may already have closed the connection.
	_, writeErr := c.Write([]byte(Greeting + "\n"))
	answer, err := c.Line(MaxGreeting)
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP/")):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("no greeting from the DHCP daemon: %w", errors.Join(writeErr, err))
	case string(answer) != Greeting:
		return false, fmt.Errorf("the process that listens there is not a DHCP daemon; it sent %q",
			answer)
	}
	return true, nil
}

func (c *Conn) call(q Request) (*Reply, error) {
	if err := c.Send(q, q.NS); err != nil {
		return nil, err
	}
	r := new(Reply)
	f, err := c.Receive(maxReply, r)
	if err != nil {
		return nil, fmt.Errorf("no answer from the DHCP daemon: %w", err)
	}
	r.Listener = f
	return r, nil
}

// callUpstream lets tenon-dhcp send a request to the upstream plugin's daemon.
func callUpstream(ctx context.Context, socket string, q Request) (*Reply, error) {
	switch q.Verb {
	case Allocate, Check, Release:
	default:
		return nil, fmt.Errorf("%s: %w: %s", socket, ErrUpstream, q.Verb)
	}
	request, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := callProgram(ctx, socket, request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, errors.Join(context.Cause(ctx), err))
	}
	r := new(Reply)
	if err := json.Unmarshal(answer, r); err != nil {
		return nil, fmt.Errorf("malformed answer from %s: %w", Program, err)
	}
	return r, nil
}
