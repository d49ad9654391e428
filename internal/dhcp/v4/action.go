package v4

import "net/netip"

// Action is what has to be done for a client: [Send], [Probe], [Bind], [Lose] or [Fail].
type Action = any

// Send sends a message, from UDP port 68 to port 67.
type Send struct {
	Message *Message
	// From is the client's address; not valid: it has none (0.0.0.0).
	From netip.Addr
	// To is a server, for an ordinary packet; not valid: everybody on the link (255.255.255.255).
	To netip.Addr
}

// Probe asks the link who has an address (RFC 5227 section 2.1), and has [Machine.Probed] called. Without that call within
// 10 s nobody has it.
type Probe struct{ Address netip.Addr }

// Bind says what the client has now, also when a lease was only prolonged: see [Lease.Same]. Before is what it had, or nil.
type Bind struct {
	Lease  Lease
	Before *Lease
}

// Lose says that the client must not use its address any more, and why. It goes on trying to get another.
type Lose struct {
	Lease  Lease
	Reason string
}

// Fail says that there was no first lease in time ([Params.Total]), and why. The client has stopped.
type Fail struct{ Reason string }
