// Package v6 is DHCP for IPv6 (RFC 8415): messages, and the client as a state machine, for addresses (IA_NA) or stateless. It
// does no input or output and has no clock: who runs it does. Prefixes (IA_PD), relays, reconfiguration and rapid commit are not in it.
package v6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Type is the type of a message (RFC 8415 section 7.3).
type Type byte

// The types.
const (
	Solicit Type = 1 + iota
	Advertise
	Request
	Confirm
	Renew
	Rebind
	Reply
	Release
	Decline
	Reconfigure
	InformationRequest
)

// String returns the name as in RFC 8415.
func (t Type) String() string {
	names := [...]string{"SOLICIT", "ADVERTISE", "REQUEST", "CONFIRM", "RENEW", "REBIND", "REPLY", "RELEASE", "DECLINE", "RECONFIGURE",
		"INFORMATION-REQUEST"}
	if t < Solicit || int(t) > len(names) {
		return fmt.Sprintf("type %d", byte(t))
	}
	return names[t-Solicit]
}

// Codes of options.
const (
	OptClientID   = 1
	OptServerID   = 2
	OptIANA       = 3
	OptIAAddr     = 5
	OptRequest    = 6 // ORO: codes of options that are asked for
	OptPreference = 7
	OptElapsed    = 8
	OptStatus     = 13
	OptDNS        = 23 // RFC 3646
	OptSearch     = 24 // RFC 3646
	OptRefresh    = 32
	OptSolMaxRT   = 82
	OptInfMaxRT   = 83
)

// Message is a message to or from a server, not by a relay.
type Message struct {
	Type    Type
	XID     uint32 // 24 bits
	Options []Option
}

// Option is an option. Those of one code may be there more than once.
type Option struct {
	Code  uint16
	Value []byte
}

const (
	headerLen = 4
	maxLen    = 4096 // of a message: a server has no reason to send as much
)

// ErrMalformed says that bytes are no message.
var ErrMalformed = errors.New("malformed DHCPv6 message")

// Get returns the value of the first option of a code. It is nil if there is none, and not nil if there is one without value.
func (m *Message) Get(code uint16) []byte { return get(m.Options, code) }

func get(list []Option, code uint16) []byte {
	for _, o := range list {
		switch {
		case o.Code != code:
		case o.Value == nil:
			return []byte{}
		default:
			return o.Value
		}
	}
	return nil
}

// Add appends an option.
func (m *Message) Add(code uint16, value []byte) {
	m.Options = append(m.Options, Option{code, value})
}

// Encode returns the message as it is sent.
func (m *Message) Encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(m.Type)<<24|m.XID&0xffffff)
	return appendOptions(b, m.Options)
}

func appendOptions(b []byte, list []Option) []byte {
	for _, o := range list {
		b = binary.BigEndian.AppendUint16(b, o.Code)
		b = binary.BigEndian.AppendUint16(b, uint16(len(o.Value)))
		b = append(b, o.Value...)
	}
	return b
}

// Decode reads a message; it keeps nothing of b. The error is [ErrMalformed].
func Decode(b []byte) (*Message, error) {
	if len(b) < headerLen || len(b) > maxLen {
		return nil, fmt.Errorf("%w: %d bytes (%d to %d)", ErrMalformed, len(b), headerLen, maxLen)
	}
	head := binary.BigEndian.Uint32(b)
	m := &Message{Type: Type(head >> 24), XID: head & 0xffffff}
	if m.Type < Solicit || m.Type > InformationRequest {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, m.Type)
	}
	var ok bool
	if m.Options, ok = options(slices.Clone(b[headerLen:])); !ok {
		return nil, fmt.Errorf("%w: an option is cut off", ErrMalformed)
	}
	return m, nil
}

// options reads options; what they hold is not copied.
func options(b []byte) (list []Option, ok bool) {
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, false
		}
		code, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if len(b) < 4+n {
			return nil, false
		}
		list = append(list, Option{code, b[4 : 4+n]})
		b = b[4+n:]
	}
	return list, true
}

// Infinite is the time of what never ends.
const Infinite = time.Duration(1<<63 - 1)

func duration(b []byte) time.Duration {
	seconds := binary.BigEndian.Uint32(b)
	if seconds == 1<<32-1 {
		return Infinite
	}
	return time.Duration(seconds) * time.Second
}

// seconds returns the time in an option; ok is false if there is none.
func (m *Message) seconds(code uint16) (d time.Duration, ok bool) {
	v := m.Get(code)
	if len(v) != 4 {
		return 0, false
	}
	return duration(v), true
}

// addrs returns the addresses in an option that can be those of nodes.
func (m *Message) addrs(code uint16) (list []netip.Addr) {
	for v := m.Get(code); len(v) >= 16; v = v[16:] {
		if a := netip.AddrFrom16([16]byte(v)); !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6() {
			list = append(list, a)
		}
	}
	return list
}
