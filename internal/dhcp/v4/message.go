// Package v4 is DHCP for IPv4 (RFC 2131, options RFC 2132): messages, and the client as a state machine. It does no input or
// output and has no clock: who runs it does.
package v4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Type is the type of a message (option 53).
type Type byte

// The types.
const (
	Discover Type = 1 + iota
	Offer
	Request
	Decline
	ACK
	NAK
	Release
	Inform
)

// String returns the name as in RFC 2131.
func (t Type) String() string {
	names := [...]string{"DISCOVER", "OFFER", "REQUEST", "DECLINE", "ACK", "NAK", "RELEASE", "INFORM"}
	if t < Discover || int(t) > len(names) {
		return fmt.Sprintf("type %d", byte(t))
	}
	return "DHCP" + names[t-Discover]
}

// Codes of options.
const (
	OptSubnetMask     = 1
	OptRouter         = 3
	OptDNS            = 6
	OptHostName       = 12
	OptDomainName     = 15
	OptMTU            = 26
	OptStaticRoutes   = 33
	OptRequestedIP    = 50
	OptLeaseTime      = 51
	OptOverload       = 52
	OptType           = 53
	OptServerID       = 54
	OptParameters     = 55
	OptMessage        = 56
	OptMaxMessageSize = 57
	OptRenewalTime    = 58
	OptRebindingTime  = 59
	OptVendorClass    = 60
	OptClientID       = 61
	OptUserClass      = 77
	OptSearch         = 119
	OptClasslessRoute = 121

	optPad, optEnd = 0, 255
)

// Message is a message to or from a server. Addresses that are not valid are 0.0.0.0.
type Message struct {
	Reply     bool // BOOTREPLY
	XID       uint32
	Secs      uint16 // since the client began, seconds
	Broadcast bool   // the server shall answer by broadcast
	Client    netip.Addr
	Your      netip.Addr
	Server    netip.Addr
	Relay     netip.Addr
	MAC       net.HardwareAddr // 6 bytes
	Options   []Option
}

// Option is an option; in a message each code is there once.
type Option struct {
	Code  byte
	Value []byte
}

// The layout of RFC 2131 section 2.
const (
	bootRequest, bootReply = 1, 2
	ethernet               = 1
	broadcastFlag          = 0x8000
	fileAt, snameAt        = 108, 44
	optionsAt              = 240
	minLen                 = 300 // some relays drop what is shorter
	maxLen                 = maxMessage - 28
)

// maxMessage is the longest packet that servers are told to send (option 57), bytes with the 28 of its IP and UDP headers.
const maxMessage = 1500

var cookie = []byte{99, 130, 83, 99}

// Get returns the value of an option, nil if it is not there.
func (m *Message) Get(code byte) []byte {
	for _, o := range m.Options {
		if o.Code == code {
			return o.Value
		}
	}
	return nil
}

// Set gives an option a value.
func (m *Message) Set(code byte, value []byte) {
	i := slices.IndexFunc(m.Options, func(o Option) bool { return o.Code == code })
	if i < 0 {
		m.Options = append(m.Options, Option{code, value})
		return
	}
	m.Options[i].Value = value
}

// Type returns the type of the message, 0 if it has none.
func (m *Message) Type() Type {
	if v := m.Get(OptType); len(v) == 1 {
		return Type(v[0])
	}
	return 0
}

// Addr returns the address in an option; ok is false if there is none, or more than one where only one can be.
func (m *Message) Addr(code byte) (a netip.Addr, ok bool) {
	v := m.Get(code)
	if len(v) != 4 {
		return a, false
	}
	return netip.AddrFrom4([4]byte(v)), true
}

// Addrs returns the addresses in an option.
func (m *Message) Addrs(code byte) (list []netip.Addr) {
	for v := m.Get(code); len(v) >= 4; v = v[4:] {
		list = append(list, netip.AddrFrom4([4]byte(v)))
	}
	return list
}

// Duration returns the seconds in an option; all bits set is [Infinite]. ok is false if there is none.
func (m *Message) Duration(code byte) (d time.Duration, ok bool) {
	v := m.Get(code)
	if len(v) != 4 {
		return 0, false
	}
	seconds := binary.BigEndian.Uint32(v)
	if seconds == 1<<32-1 {
		return Infinite, true
	}
	return time.Duration(seconds) * time.Second, true
}

// Infinite is the time of a lease that never ends.
const Infinite = time.Duration(1<<63 - 1)

// Encode returns the message as it is sent, at least 300 bytes (RFC 1542 section 2.1).
func (m *Message) Encode() []byte {
	b := make([]byte, optionsAt, minLen)
	b[0], b[1], b[2] = bootRequest, ethernet, byte(len(m.MAC))
	if m.Reply {
		b[0] = bootReply
	}
	binary.BigEndian.PutUint32(b[4:], m.XID)
	binary.BigEndian.PutUint16(b[8:], m.Secs)
	if m.Broadcast {
		binary.BigEndian.PutUint16(b[10:], broadcastFlag)
	}
	for i, a := range []netip.Addr{m.Client, m.Your, m.Server, m.Relay} {
		if a.Is4() {
			copy(b[12+4*i:], a.AsSlice())
		}
	}
	copy(b[28:44], m.MAC)
	copy(b[optionsAt-len(cookie):], cookie)
	for _, o := range m.Options {
		if o.Code == optPad || o.Code == optEnd {
			continue // no options: nothing can follow them
		}
		rest := o.Value
		for { // RFC 3396: what is longer follows in another option of the same code
			n := min(len(rest), 255)
			b = append(append(b, o.Code, byte(n)), rest[:n]...)
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
	}
	b = append(b, optEnd)
	return append(b, make([]byte, max(0, minLen-len(b)))...)
}

// ErrMalformed says that bytes are no message.
var ErrMalformed = errors.New("malformed DHCP message")

// Decode reads a message; it keeps nothing of b. The error is [ErrMalformed].
func Decode(b []byte) (*Message, error) {
	if len(b) < optionsAt || len(b) > maxLen || !bytes.Equal(b[optionsAt-len(cookie):optionsAt], cookie) {
		return nil, fmt.Errorf("%w: %d bytes (%d to %d), or no magic cookie", ErrMalformed, len(b), optionsAt, maxLen)
	}
	if b[0] != bootRequest && b[0] != bootReply || b[1] != ethernet || b[2] != 6 {
		return nil, fmt.Errorf("%w: op %d, hardware type %d with %d bytes", ErrMalformed, b[0], b[1], b[2])
	}
	m := &Message{
		Reply: b[0] == bootReply, XID: binary.BigEndian.Uint32(b[4:]), Secs: binary.BigEndian.Uint16(b[8:]),
		Broadcast: binary.BigEndian.Uint16(b[10:])&broadcastFlag != 0, MAC: slices.Clone(net.HardwareAddr(b[28:34])),
	}
	for i, a := range []*netip.Addr{&m.Client, &m.Your, &m.Server, &m.Relay} {
		if v := netip.AddrFrom4([4]byte(b[12+4*i:])); !v.IsUnspecified() {
			*a = v
		}
	}
	if err := m.options(b[optionsAt:]); err != nil {
		return nil, err
	}
	// RFC 2131 section 4.1: first the file field, then that of the server's name.
	if v := m.Get(OptOverload); len(v) == 1 {
		if v[0]&1 != 0 {
			if err := m.options(b[fileAt : fileAt+128]); err != nil {
				return nil, err
			}
		}
		if v[0]&2 != 0 {
			if err := m.options(b[snameAt : snameAt+64]); err != nil {
				return nil, err
			}
		}
	}
	if m.Type() == 0 {
		return nil, fmt.Errorf("%w: no type", ErrMalformed)
	}
	return m, nil
}

// options reads options up to the end, and joins those of one code (RFC 3396).
func (m *Message) options(b []byte) error {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return fmt.Errorf("%w: option %d is cut off", ErrMalformed, b[0])
		}
		code, value := b[0], b[2:2+int(b[1])]
		m.Set(code, append(m.Get(code), value...)) // a copy: what is appended to is nil or made here
		b = b[2+len(value):]
	}
	return nil
}

// Text returns an option that people read, without a final zero and with what does not print replaced.
func (m *Message) Text(code byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, bytes.TrimRight(m.Get(code), "\x00")))
}
