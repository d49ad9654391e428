// Package client is what the clients of DHCPv4 and DHCPv6 have in common: how they keep from asking all together, and how they
// say why they have no lease.
package client

import (
	"fmt"
	"time"
)

// Earlier brings the time of a renewal forward by less than a tenth of the way back to when the lease was given, so that clients
// that have got their leases together do not prolong them together (RFC 2131 section 4.4.5). It is never later than servers
// say, and before T1 they answer too (RFC 8415 section 18.2.4). A zero time, which is never, stays.
func Earlier(t, given time.Time, random uint64) time.Time {
	if t.IsZero() {
		return t
	}
	const parts = 10000 // in a tenth: 1000
	return t.Add(-t.Sub(given) / parts * time.Duration(random%(parts/10)))
}

// Because adds to what happened why, if that is known.
func Because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// Tries says how many there were.
func Tries(n int) string {
	if n == 1 {
		return "one try"
	}
	return fmt.Sprintf("%d tries", n)
}
