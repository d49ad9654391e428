// Package v6 implements the client of DHCP for IPv6 (RFC 8415) as a state machine, for addresses
// (IA_NA) or stateless. It does no input or output and has no clock; its caller provides both.
// Package dhcpv6 decodes and encodes the bytes. The package does not support prefixes (IA_PD),
// relays, reconfiguration or rapid commit.
package v6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// Type is the type of a message (RFC 8415 section 7.3).
type Type = dhcpv6.MessageType

// The types.
const (
	Solicit            = dhcpv6.MessageTypeSolicit
	Advertise          = dhcpv6.MessageTypeAdvertise
	Request            = dhcpv6.MessageTypeRequest
	Confirm            = dhcpv6.MessageTypeConfirm
	Renew              = dhcpv6.MessageTypeRenew
	Rebind             = dhcpv6.MessageTypeRebind
	Reply              = dhcpv6.MessageTypeReply
	Release            = dhcpv6.MessageTypeRelease
	Decline            = dhcpv6.MessageTypeDecline
	Reconfigure        = dhcpv6.MessageTypeReconfigure
	InformationRequest = dhcpv6.MessageTypeInformationRequest
)

// Message is a message between a client and a server, without relays.
type Message struct {
	Type    Type
	XID     uint32 // 24 bits
	Options dhcpv6.Options
}

const (
	headerLen = 4
	maxLen    = 4096 // maximum length of a message; servers have no reason to send more
)

// ErrMalformed reports that bytes are not a message.
var ErrMalformed = errors.New("malformed DHCPv6 message")

// Get returns the value of the first option with a code. It is nil if there is none, and not nil if
// the option has no value.
func (m *Message) Get(code dhcpv6.OptionCode) []byte { return get(m.Options, code) }

func get(list dhcpv6.Options, code dhcpv6.OptionCode) []byte {
	if o := list.GetOne(code); o != nil {
		return o.ToBytes()
	}
	return nil
}

// Add appends an option.
func (m *Message) Add(code dhcpv6.OptionCode, value []byte) { m.Options.Add(raw(code, value)) }

// raw is an option as bytes, which it copies.
func raw(code dhcpv6.OptionCode, value []byte) dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: code, OptionData: append([]byte{}, value...)}
}

// Encode returns the message in wire format.
func (m *Message) Encode() []byte {
	p := dhcpv6.Message{MessageType: m.Type, Options: dhcpv6.MessageOptions{Options: m.Options}}
	p.TransactionID = [3]byte(binary.BigEndian.AppendUint32(nil, m.XID<<8))
	return p.ToBytes()
}

// Decode decodes a message. It does not retain b. The error wraps [ErrMalformed].
func Decode(b []byte) (*Message, error) {
	if len(b) < headerLen || len(b) > maxLen {
		return nil, fmt.Errorf("%w: %d bytes (%d to %d)", ErrMalformed, len(b), headerLen, maxLen)
	}
	head := binary.BigEndian.Uint32(b)
	m := &Message{Type: Type(head >> 24), XID: head & 0xffffff}
	if m.Type < Solicit || m.Type > InformationRequest {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, m.Type)
	}
	var err error
	if m.Options, err = options(b[headerLen:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

// options decodes options as bytes. The parsers of package dhcpv6 would refuse the whole message
// for an error in an unused option, or in one of several addresses.
func options(b []byte) (list dhcpv6.Options, err error) {
	parse := func(code dhcpv6.OptionCode, data []byte) (dhcpv6.Option, error) {
		return raw(code, data), nil
	}
	err = list.FromBytesWithParser(b, parse)
	return list, err
}

// seconds returns the duration in an option. ok is false if there is none.
func (m *Message) seconds(code dhcpv6.OptionCode) (d time.Duration, ok bool) {
	return client.Duration(m.Get(code))
}

// addrs returns the addresses in an option that nodes can have.
func (m *Message) addrs(code dhcpv6.OptionCode) (list []netip.Addr) {
	for v := m.Get(code); len(v) >= 16; v = v[16:] {
		if a := netip.AddrFrom16([16]byte(v)); !a.IsUnspecified() && !a.IsMulticast() &&
			!a.IsLoopback() && !a.Is4In6() {
			list = append(list, a)
		}
	}
	return list
}
