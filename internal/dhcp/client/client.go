// Package client holds what the state machines of DHCPv4 and DHCPv6 share: the lease and the
// attempts to get one, the actions of the caller, lease times, and the texts and names that servers
// send.
package client

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// Action is an action for the caller of a client: [Bind], [Lose] or [Fail], or one that only a
// protocol has.
type Action = any

// Bind is the lease that the client has from now on, also where a server only renewed it. Before is
// the lease until now, or nil; the client must no longer use addresses that only Before has. L is
// the type of the lease.
type Bind[L any] struct {
	Lease  L
	Before *L
}

// Lose means that the client must no longer use the addresses of its lease. It continues to try to
// get another.
type Lose[L any] struct {
	Lease  L
	Reason string
}

// Fail means that there was no first lease in time. The client has stopped.
type Fail[L any] struct{ Reason string }

// Core is the part of a client that does not depend on the protocol. L is the type of the lease.
type Core[L any] struct {
	Held    *L        // the lease, which the caller must not change; nil if there is none
	Wake    time.Time // zero: never
	Pauses  int       // between attempts, so far
	GiveUp  time.Time // zero: never
	Refused string    // why the last attempt to get or renew a lease failed, "" if it did not

	actions []Action
}

// Do adds an action.
func (c *Core[L]) Do(a Action) { c.actions = append(c.actions, a) }

// Bind takes a lease.
func (c *Core[L]) Bind(l L) {
	c.Do(Bind[L]{l, c.Held})
	c.Held, c.GiveUp, c.Pauses, c.Refused = &l, time.Time{}, 0, ""
}

// Lose gives up the lease.
func (c *Core[L]) Lose(reason string) {
	c.Do(Lose[L]{*c.Held, reason})
	c.Held, c.Refused, c.Pauses = nil, reason, 0
}

// Fail ends the client without a lease.
func (c *Core[L]) Fail(reason string) {
	*c = Core[L]{Refused: reason, actions: append(c.actions, Fail[L]{reason})}
}

// Stop ends the client. The caller still gets its actions.
func (c *Core[L]) Stop() { *c = Core[L]{Refused: c.Refused, actions: c.actions} }

// TooLate reports whether there is no time for another attempt.
func (c *Core[L]) TooLate(attempt time.Time) bool {
	return !c.GiveUp.IsZero() && attempt.After(c.GiveUp)
}

// Take returns the actions for the caller, and when the client must wake: at the latest at a time
// of limits.
func (c *Core[L]) Take(now time.Time, limits ...time.Time) ([]Action, time.Time) {
	wake := c.Wake
	for _, t := range limits {
		wake = Earliest(wake, t)
	}
	if !wake.IsZero() && wake.Before(now) {
		wake = now
	}
	actions := c.actions
	c.actions = nil
	return actions, wake
}

// Earliest returns the earlier of two times; zero is never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Earlier moves the time of a renewal forward by less than a tenth of the time since the lease was
// given, so that clients with leases of the same time do not renew them together (RFC 2131 section
// 4.4.5). The result is never later than servers allow, and they answer before T1 too (RFC 8415
// section 18.2.4). A zero time, which is never, stays.
func Earlier(t, start time.Time, random uint64) time.Time {
	if t.IsZero() {
		return t
	}
	const parts = 10000 // in a tenth: 1000
	return t.Add(-t.Sub(start) / parts * time.Duration(random%(parts/10)))
}

// Infinite is the time of a lease that never ends.
const Infinite = time.Duration(1<<63 - 1)

// Seconds reads the time in the first 4 bytes; all bits set is [Infinite].
func Seconds(b []byte) time.Duration {
	seconds := binary.BigEndian.Uint32(b)
	if seconds == 1<<32-1 {
		return Infinite
	}
	return time.Duration(seconds) * time.Second
}

// Duration reads a time of 4 bytes, see [Seconds]; ok is false if b has another length.
func Duration(b []byte) (d time.Duration, ok bool) {
	if len(b) != 4 {
		return 0, false
	}
	return Seconds(b), true
}

// Text returns a text of a server without final zeros, and with a question mark for each character
// that does not print.
func Text(b []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, bytes.TrimRight(b, "\x00")))
}

// Because adds the reason to what happened, if it is known.
func Because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// Tries returns a number of tries in words.
func Tries(n int) string {
	if n == 1 {
		return "one try"
	}
	return fmt.Sprintf("%d tries", n)
}
