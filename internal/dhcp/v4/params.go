package v4

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Params are the identity and the options of a client. The comments of the fields name their
// defaults, which zero stands for.
type Params struct {
	MAC net.HardwareAddr // 6 bytes
	// ClientID is option 61, see [ClientID]; bytes after the 255th are ignored. If it is empty,
	// servers identify the client by its MAC address.
	ClientID []byte
	// Options are sent in addition to the protocol's. Option 61 replaces ClientID; options that the
	// protocol itself sets are ignored.
	Options []Option
	// Parameters is option 55: the codes of requested options. If it is empty, the server decides.
	Parameters []byte
	Broadcast  bool // ask for answers by broadcast
	Probe      bool // probe an address before using it

	// Timeout is the wait after the first transmission of a message, 10 s by default. It doubles
	// with each further transmission.
	Timeout time.Duration
	// Pause limits the time between attempts to get a lease, 62 s by default. The first pause is 2
	// s.
	Pause time.Duration
	Total time.Duration // limit for getting the first lease; 0 for none

	Rand func() uint64 // source of transaction numbers and jitter, by default [rand.Uint64]
}

// ClientID returns the identifier (option 61) for a text, at most 255 bytes: a zero byte (RFC 2132
// section 9.14: not a MAC address) and the text. If the text is too long, a hash replaces its end,
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

// complete returns the parameters with defaults and a single identifier.
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
