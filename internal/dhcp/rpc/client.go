package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/dhcp/program"
)

// Call makes a request of the daemon at a socket. The error wraps ErrUnreachable if there is none;
// the error of the daemon is in [Reply.Err].
func Call(ctx context.Context, socket string, q Request) (*Reply, error) {
	c, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer c.until(ctx)()
	ours, err := c.greet(ctx)
	if err == nil && !ours {
		return callUpstream(ctx, socket, q)
	}
	var r *Reply
	if err == nil {
		r, err = c.call(q)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, errors.Join(context.Cause(ctx), err))
	}
	return r, nil
}

// greet reports whether the daemon is of this kind.
func (c *conn) greet(ctx context.Context) (ours bool, err error) {
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stop := c.until(short)
	defer stop()
	_, writeErr := c.Write([]byte(greeting)) // who refuses may have hung up by now
	answer, err := c.line(maxGreeting)
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP/")):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("no greeting of the daemon: %w", errors.Join(writeErr, err))
	case string(answer)+"\n" != greeting:
		return false, fmt.Errorf("what answers is no daemon of dhcp: %q", answer)
	}
	return true, nil
}

// callUpstream has the program of our daemon make a request of the upstream plugin's daemon.
func callUpstream(ctx context.Context, socket string, q Request) (*Reply, error) {
	switch q.Verb {
	case Allocate, Check, Release:
	default:
		return nil, fmt.Errorf("%s: %w: %s", socket, ErrUpstream, q.Verb)
	}
	request, err := encode(q)
	if err != nil {
		return nil, err
	}
	answer, err := program.Call(ctx, socket, request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, errors.Join(context.Cause(ctx), err))
	}
	r := new(Reply)
	if err := json.Unmarshal(answer, r); err != nil {
		return nil, fmt.Errorf("malformed answer of %s: %w", program.Name, err)
	}
	return r, nil
}

func (c *conn) call(q Request) (*Reply, error) {
	request, err := encode(q)
	if err != nil {
		return nil, err
	}
	if err := c.send(request, q.NS); err != nil {
		return nil, err
	}
	r := new(Reply)
	if err := receive(c, maxReply, r); err != nil {
		return nil, fmt.Errorf("no answer of the daemon: %w", err)
	}
	r.Listener = first(c.take())
	return r, nil
}
