package v6

import (
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// Params are the identity and the wishes of a client. A field that is zero has the default that its
// comment names.
type Params struct {
	ClientID DUID                // required
	IAID     uint32              // which of the client's interfaces this is (RFC 8415 section 12)
	Request  []dhcpv6.OptionCode // codes of requested options; the protocol adds its own

	Stateless bool          // no address, only settings
	Probe     bool          // the client probes an address before it takes it
	Total     time.Duration // for getting the first lease; 0: for ever

	Rand func() uint64 // the source of transaction numbers and of jitter, [rand.Uint64]
}
