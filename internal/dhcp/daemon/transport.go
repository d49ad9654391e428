package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/link"
)

const (
	listenFor  = 40 * time.Second // after a message; then the namespace is let go
	maxMessage = 4096             // bytes of a message; option 57 asks for at most 1500
)

// conn is a socket of package link.
type conn interface {
	Receive(buffer []byte) (message []byte, err error)
	Close() error
}

// line is an open interface with a socket. C and M are pointers, so that the compiler makes one
// code for both protocols.
type line[C conn, M any] struct {
	*openLink
	conn     C
	port     *link.Port // that a message was sent from by unicast; may be nil
	messages chan M
	closed   chan struct{}
}

// talk connects a machine with its interface. It has no line while the machine expects no message.
type talk[C conn, M any] struct {
	wake  time.Time   // when the machine wants to go on; zero: never
	line  *line[C, M] // nil while it is closed
	until time.Time   // when it is closed unless something is sent
}

// dial opens the line, unless it is open.
func (t *talk[C, M]) dial(ctx context.Context, l *lease, open func(*link.Link) (C, error), decode func([]byte) (M, error)) error {
	t.until = time.Now().Add(listenFor)
	if t.line != nil {
		return nil
	}
	at, err := l.open(ctx)
	if err != nil {
		return err
	}
	conn, err := open(at.dhcp())
	if err != nil {
		return errors.Join(err, at.Close())
	}
	opened := &line[C, M]{openLink: at, conn: conn, messages: make(chan M), closed: make(chan struct{})}
	t.line = opened
	l.d.running.Go(func() { opened.receive(l.log, decode) })
	return nil
}

// hangUp closes the line.
func (t *talk[C, M]) hangUp() {
	if t.line != nil {
		t.line.closePort()
		close(t.line.closed)
		t.line.conn.Close()
		t.line.Close()
		t.line = nil
	}
}

// next returns the time of the next action, at most by, and the channel of messages. It closes the
// line if none are expected.
func (t *talk[C, M]) next(by time.Time, expected bool) (time.Time, chan M) {
	if t.line != nil && (!expected || time.Now().After(t.until)) {
		t.hangUp()
	}
	if !t.wake.IsZero() && t.wake.Before(by) {
		by = t.wake
	}
	if t.line == nil {
		return by, nil
	}
	if t.until.Before(by) {
		by = t.until
	}
	return by, t.line.messages
}

func (l *line[C, M]) closePort() {
	if l.port != nil {
		l.port.Close()
		l.port = nil
	}
}

// receive passes messages on until the line is closed.
func (l *line[C, M]) receive(log *slog.Logger, decode func([]byte) (M, error)) {
	buffer := make([]byte, maxMessage)
	for {
		b, err := l.conn.Receive(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // such as that the interface is down; when it is up again more comes
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
