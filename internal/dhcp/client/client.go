// Package client holds the common parts of the DHCPv4 and DHCPv6 state machines: the lease and the
// attempts to get one, the actions for the caller, lease times, and the decoding of texts and
// names.
package client

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// Action is an action that a client requests from its caller: [Bind], [Lose], [Fail], or an action
// of one protocol.
type Action = any

// Bind reports the lease that the client holds from now on, including a renewed one. Before is the
// previous lease, or nil; the client must no longer use addresses that only Before has. L is the
// type of the lease.
type Bind[L any] struct {
	Lease  L
	Before *L
}

// Lose reports that the client must no longer use the addresses of its lease. The client continues
// to request another lease.
type Lose[L any] struct {
	Lease  L
	Reason string
}

// Fail reports that the client did not get a first lease in time, and has stopped.
type Fail[L any] struct{ Reason string }

// Core is the part of a client that does not depend on the protocol. L is the type of the lease.
type Core[L any] struct {
	Held    *L        // the current lease, which the caller must not change, or nil
	Wake    time.Time // zero stands for never
	Pauses  int       // number of pauses between attempts so far
	GiveUp  time.Time // zero stands for never
	Refused string    // why the last attempt to get or renew a lease failed, or ""

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

// TooLate reports whether an attempt would be after the time limit.
func (c *Core[L]) TooLate(attempt time.Time) bool {
	return !c.GiveUp.IsZero() && attempt.After(c.GiveUp)
}

// Take returns the actions for the caller, and the time at which the client must wake: the earliest
// of Wake and limits.
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

// Earliest returns the earlier of two times. Zero stands for never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Earlier moves the time of a renewal forward by less than a tenth of the time since start, so that
// clients with equal lease times do not renew together (RFC 2131 section 4.4.5). The result is
// never later than servers allow, and servers also answer before T1 (RFC 8415 section 18.2.4). A
// zero time, which stands for never, does not change.
func Earlier(t, start time.Time, random uint64) time.Time {
	if t.IsZero() {
		return t
	}
	const parts = 10000 // a tenth has 1000 parts
	return t.Add(-t.Sub(start) / parts * time.Duration(random%(parts/10)))
}

// Infinite is the duration of a lease that never expires.
const Infinite = time.Duration(1<<63 - 1)

// Seconds decodes the duration in the first 4 bytes. All bits set stands for [Infinite].
func Seconds(b []byte) time.Duration {
	seconds := binary.BigEndian.Uint32(b)
	if seconds == 1<<32-1 {
		return Infinite
	}
	return time.Duration(seconds) * time.Second
}

// Duration decodes a duration of 4 bytes, see [Seconds]. ok is false if b has another length.
func Duration(b []byte) (d time.Duration, ok bool) {
	if len(b) != 4 {
		return 0, false
	}
	return Seconds(b), true
}

// Text returns a text from a server without trailing zeros. A question mark replaces each character
// that is not printable.
func Text(b []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, bytes.TrimRight(b, "\x00")))
}

// Because appends the reason to a message, unless the reason is empty.
func Because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// Tries describes a number of tries.
func Tries(n int) string {
	if n == 1 {
		return "one try"
	}
	return fmt.Sprintf("%d tries", n)
}
