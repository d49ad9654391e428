package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Change is a change of a route, a neighbour or a forwarding entry that [Conn.Make] makes together
// with others.
type Change struct {
	Text string // describes it: "delete route 10.64.0.0/26 …"

	request Request
}

// change returns a change; flags are NLM_F_… in addition to NLM_F_ACK.
func change(text string, kind uint16, flags int, body []byte) Change {
	return Change{text, Request{kind, flags | unix.NLM_F_ACK, body}}
}

// Make makes independent changes in their order, and continues past errors. The errors name the
// changes; deleting an object that does not exist is no error. The kernel must be able to hold the
// answers in the socket, so a caller passes a few dozen changes at a time.
func (c *Conn) Make(changes []Change) (errs []error) {
	if len(changes) == 0 {
		return nil
	}
	requests := make([]Request, len(changes))
	for i, ch := range changes {
		requests[i] = ch.request
		if c.watch != nil {
			c.watch(messageName(ch.request.Kind))
		}
	}
	answers, err := c.exchange.SendAll(c.fd, requests...)
	if err != nil {
		errs = append(errs, fmt.Errorf("%d changes: %w", len(changes), err))
	}
	for i, err := range answers {
		switch changes[i].request.Kind {
		case unix.RTM_DELROUTE, unix.RTM_DELNEIGH:
			err = unless(err, append([]unix.Errno{unix.ENOENT}, gone...)...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", changes[i].Text, err))
		}
	}
	return errs
}

// ErrTaken reports whether a change failed because another program has an object with the same key.
func ErrTaken(err error) bool { return errors.Is(err, unix.EEXIST) }

// RawChange returns a change of any kind, for programs that copy objects with all their attributes.
// flags are NLM_F_… in addition to NLM_F_ACK; body is encoded as by [Body].
func RawChange(text string, kind uint16, flags int, body []byte) Change {
	return change(text, kind, flags, body)
}

// Try makes changes like [Conn.Make] and returns the error of each, nil for success.
func (c *Conn) Try(changes []Change) ([]error, error) {
	requests := make([]Request, len(changes))
	for i, ch := range changes {
		requests[i] = ch.request
	}
	return c.exchange.SendAll(c.fd, requests...)
}
