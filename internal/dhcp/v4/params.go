package v4

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Params are the identity and the wishes of a client. A field that is zero has the default that its
// comment names.
type Params struct {
	MAC net.HardwareAddr // 6 bytes
	// ClientID is option 61, see [ClientID]; at most 255 bytes count. If it is empty, servers
	// identify the client by its MAC address.
	ClientID []byte
	// Options are sent in addition. Option 61 replaces ClientID; options that the protocol itself
	// sets are ignored.
	Options    []Option
	Parameters []byte // option 55: codes of options asked for; none: what the server thinks fit
	Broadcast  bool   // asks for an answer by broadcast
	Probe      bool   // the client probes an address before it takes it

	Timeout time.Duration // after the first transmission of a message, 10 s; after the second and third twice and four times
	Pause   time.Duration // between attempts to get a lease, at most, 62 s; it begins with 2 s and grows up to that
	Total   time.Duration // for getting the first lease; 0: for ever

	Rand func() uint64 // the source of transaction numbers and of jitter, [rand.Uint64]
}

// ClientID returns the identifier (option 61) for a text, at most 255 bytes: a zero byte (RFC 2132
// section 9.14: no MAC address) and the text. A hash replaces the end of a text that is too long,
// so that different texts have different identifiers.
func ClientID(text string) []byte {
	const most = 254
	if len(text) > most {
		h := fnv.New128a()
		h.Write([]byte(text))
		sum := fmt.Sprintf("#%x", h.Sum(nil))
		text = text[:most-len(sum)] + sum
	}
	return append([]byte{0}, text...)
}

// complete returns the parameters with the defaults, and the identifier in one place.
func (p Params) complete() Params {
	for _, o := range p.Options {
		if o.Code == OptClientID {
			p.ClientID = o.Value
		}
	}
	p.ClientID = p.ClientID[:min(len(p.ClientID), 255)]
	own := []byte{optPad, optEnd, OptRequestedIP, OptOverload, OptType, OptServerID, OptClientID}
	p.Options = slices.DeleteFunc(slices.Clone(p.Options), func(o Option) bool {
		return slices.Contains(own, o.Code)
	})
	if p.Timeout <= 0 {
		p.Timeout = 10 * time.Second
	}
	if p.Pause <= 0 {
		p.Pause = 62 * time.Second
	}
	if p.Rand == nil {
		p.Rand = rand.Uint64
	}
	return p
}
