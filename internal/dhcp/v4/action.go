package v4

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// The actions that both protocols have.
type (
	Action = client.Action
	Bind   = client.Bind[Lease]
	Lose   = client.Lose[Lease]
	Fail   = client.Fail[Lease]
)

// Send sends a message, from UDP port 68 to port 67.
type Send struct {
	Message *Message
	// From is the client's address; not valid: it has none (0.0.0.0).
	From netip.Addr
	// To is a server, for an ordinary packet; not valid: all nodes on the link (255.255.255.255).
	To netip.Addr
}

// Probe asks the link for the owner of an address (RFC 5227 section 2.1). The caller passes the
// answer to [Machine.Probed]; the client takes an address as free if there is no call within 10 s.
type Probe struct{ Address netip.Addr }
