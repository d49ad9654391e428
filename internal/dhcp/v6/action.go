package v6

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

// Send sends a message, from the link-local address and UDP port 546 to ff02::1:2 port 547 (RFC
// 8415 section 7.1).
type Send struct{ Message *Message }

// Probe asks the link for the owners of addresses (duplicate address detection, RFC 4862 section
// 5.4). The caller passes the answer to [Machine.Probed]; the client takes the addresses as free if
// there is no call within 10 s.
type Probe struct{ Addresses []netip.Addr }
