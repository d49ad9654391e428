package v6

import "net/netip"

// Action is what has to be done for a client: [Send], [Probe], [Bind], [Lose] or [Fail].
type Action = any

// Send sends a message, from the link-local address and UDP port 546 to ff02::1:2 port 547 (RFC 8415 section 7.1).
type Send struct{ Message *Message }

// Probe asks the link who has addresses (duplicate address detection, RFC 4862 section 5.4), and has [Machine.Probed] called.
// Without that call within 10 s nobody has them.
type Probe struct{ Addresses []netip.Addr }

// Bind says what the client has now, also when a lease was only prolonged: see [Lease.Same]. Before is what the client had, or
// nil; addresses that are only there must not be used any more.
type Bind struct {
	Lease  Lease
	Before *Lease
}

// Lose says that the client must not use any of its addresses any more, and why. It goes on trying to get another.
type Lose struct {
	Lease  Lease
	Reason string
}

// Fail says that there was no first lease in time ([Params.Total]), and why. The client has stopped.
type Fail struct{ Reason string }
