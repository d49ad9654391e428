package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

const (
	listenFor  = 40 * time.Second // time after a message until the namespace is closed
	maxMessage = 4096             // bytes of a message; option 57 asks for at most 1500
)

// listener is an open interface with a socket. M is the type of messages, a pointer, so that the
// compiler generates the code for both protocols once.
type listener[M any] struct {
	*socket
	port     *port // port of the last unicast message, or nil
	messages chan M
	closed   chan struct{}
}

// transport connects a machine with its interface. It has no listener unless the machine expects a
// message.
type transport[M any] struct {
	lease  *lease
	open   func(*openLink) (*socket, error)
	decode func([]byte) (M, error)

	wake     time.Time    // when the machine must run; zero for never
	listener *listener[M] // nil if closed
	until    time.Time    // when to close it unless something is sent
}

// then appends actions of the machine to the queue.
func (t *transport[M]) then(actions []client.Action, wake time.Time) {
	t.lease.queue, t.wake = append(t.lease.queue, actions...), wake
}

// connect opens the listener, unless it is open.
func (t *transport[M]) connect(ctx context.Context) error {
	t.until = time.Now().Add(listenFor)
	if t.listener != nil {
		return nil
	}
	at, err := t.lease.open(ctx)
	if err != nil {
		return err
	}
	s, err := t.open(at)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	opened := &listener[M]{socket: s, messages: make(chan M), closed: make(chan struct{})}
	t.listener = opened
	t.lease.d.running.Go(func() { opened.pass(t.lease.log, t.decode) })
	return nil
}

// disconnect closes the listener.
func (t *transport[M]) disconnect() {
	if t.listener != nil {
		t.listener.closePort()
		close(t.listener.closed)
		t.listener.close()
		t.listener.at.Close()
		t.listener = nil
	}
}

// next returns the time of the next action, at most by, and the channel of messages. It closes the
// listener if none are expected.
func (t *transport[M]) next(by time.Time, expected bool) (time.Time, chan M) {
	if t.listener != nil && (!expected || time.Now().After(t.until)) {
		t.disconnect()
	}
	if !t.wake.IsZero() && t.wake.Before(by) {
		by = t.wake
	}
	if t.listener == nil {
		return by, nil
	}
	if t.until.Before(by) {
		by = t.until
	}
	return by, t.listener.messages
}

func (l *listener[M]) closePort() {
	if l.port != nil {
		l.port.close()
		l.port = nil
	}
}

// pass forwards messages until the listener is closed.
func (l *listener[M]) pass(log *slog.Logger, decode func([]byte) (M, error)) {
	buffer := make([]byte, maxMessage)
	for {
		b, err := l.receive(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // for example, the interface is down; messages follow when it is up again
			log.Debug("receive", "error", err)
			select {
			case <-l.closed:
				return
			case <-time.After(time.Second):
			}
			continue
		}
		m, err := decode(b)
		if err != nil {
			log.Debug("receive", "error", err)
			continue
		}
		select {
		case l.messages <- m:
		case <-l.closed:
			return
		}
	}
}
