// Package v4 implements the client of DHCP for IPv4 (RFC 2131, options RFC 2132) as a state
// machine, with the messages that it accepts and sends. It does no input or output and has no
// clock; its caller provides both. Package dhcpv4 decodes and encodes the bytes.
package v4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// Type is the type of a message (option 53).
type Type byte

// The types.
const (
	Discover = Type(dhcpv4.MessageTypeDiscover)
	Offer    = Type(dhcpv4.MessageTypeOffer)
	Request  = Type(dhcpv4.MessageTypeRequest)
	Decline  = Type(dhcpv4.MessageTypeDecline)
	ACK      = Type(dhcpv4.MessageTypeAck)
	NAK      = Type(dhcpv4.MessageTypeNak)
	Release  = Type(dhcpv4.MessageTypeRelease)
	Inform   = Type(dhcpv4.MessageTypeInform)
)

// String returns the name in RFC 2131.
func (t Type) String() string {
	if t < Discover || t > Inform {
		return fmt.Sprintf("type %d", byte(t))
	}
	return "DHCP" + dhcpv4.MessageType(t).String()
}

// Codes of options.
const (
	OptSubnetMask     = byte(dhcpv4.OptionSubnetMask)
	OptRouter         = byte(dhcpv4.OptionRouter)
	OptDNS            = byte(dhcpv4.OptionDomainNameServer)
	OptDomainName     = byte(dhcpv4.OptionDomainName)
	OptMTU            = byte(dhcpv4.OptionInterfaceMTU)
	OptStaticRoutes   = byte(dhcpv4.OptionStaticRoutingTable)
	OptRequestedIP    = byte(dhcpv4.OptionRequestedIPAddress)
	OptLeaseTime      = byte(dhcpv4.OptionIPAddressLeaseTime)
	OptOverload       = byte(dhcpv4.OptionOptionOverload)
	OptType           = byte(dhcpv4.OptionDHCPMessageType)
	OptServerID       = byte(dhcpv4.OptionServerIdentifier)
	OptParameters     = byte(dhcpv4.OptionParameterRequestList)
	OptMessage        = byte(dhcpv4.OptionMessage)
	OptMaxMessageSize = byte(dhcpv4.OptionMaximumDHCPMessageSize)
	OptRenewalTime    = byte(dhcpv4.OptionRenewTimeValue)
	OptRebindingTime  = byte(dhcpv4.OptionRebindingTimeValue)
	OptClientID       = byte(dhcpv4.OptionClientIdentifier)
	OptSearch         = byte(dhcpv4.OptionDNSDomainSearchList)
	OptClasslessRoute = byte(dhcpv4.OptionClasslessStaticRoute)

	optPad, optEnd = byte(dhcpv4.OptionPad), byte(dhcpv4.OptionEnd)
)

// Option is an option that the configuration provides.
type Option = dhcp.Option

// Message is a message to or from a server. Invalid addresses stand for 0.0.0.0.
type Message struct {
	Reply     bool // BOOTREPLY
	XID       uint32
	Secs      uint16 // seconds since the client began
	Broadcast bool   // asks for an answer by broadcast
	Client    netip.Addr
	Your      netip.Addr
	MAC       net.HardwareAddr // 6 bytes
	Options   dhcpv4.Options
}

// The layout of RFC 2131 section 2.
const (
	broadcastFlag     = 0x8000
	fileAt, snameAt   = 108, 44
	optionsAt, maxLen = 240, maxMessage - 28
)

// maxMessage is the length of the longest packet that clients accept (option 57), in bytes,
// including 28 bytes of IP and UDP headers.
const maxMessage = 1500

// Get returns the value of an option, or nil if the message does not have it.
func (m *Message) Get(code byte) []byte { return m.Options[code] }

// Set sets an option.
func (m *Message) Set(code byte, value []byte) {
	if m.Options == nil {
		m.Options = dhcpv4.Options{}
	}
	m.Options[code] = value
}

// Type returns the type of the message, or 0 if it has none.
func (m *Message) Type() Type {
	if v := m.Get(OptType); len(v) == 1 {
		return Type(v[0])
	}
	return 0
}

// Addr returns the address in an option. ok is false if there is none, or if there is more than
// one.
func (m *Message) Addr(code byte) (a netip.Addr, ok bool) {
	v := m.Get(code)
	if len(v) != 4 {
		return a, false
	}
	return netip.AddrFrom4([4]byte(v)), true
}

// addrs returns the addresses in an option that nodes can have.
func (m *Message) addrs(code byte) (list []netip.Addr) {
	for v := m.Get(code); len(v) >= 4; v = v[4:] {
		if a := netip.AddrFrom4([4]byte(v)); usable(a) {
			list = append(list, a)
		}
	}
	return list
}

// Duration returns the duration in an option. ok is false if there is none.
func (m *Message) Duration(code byte) (d time.Duration, ok bool) {
	return client.Duration(m.Get(code))
}

// Encode returns the message in wire format, at least 300 bytes (RFC 1542 section 2.1).
func (m *Message) Encode() []byte {
	p := dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, ClientHWAddr: m.MAC,
		NumSeconds: m.Secs, ClientIPAddr: m.Client.AsSlice(), YourIPAddr: m.Your.AsSlice(),
		Options: m.Options,
	}
	binary.BigEndian.PutUint32(p.TransactionID[:], m.XID)
	if m.Reply {
		p.OpCode = dhcpv4.OpcodeBootReply
	}
	if m.Broadcast {
		p.Flags = broadcastFlag
	}
	return p.ToBytes()
}

// ErrMalformed reports that bytes are not a message.
var ErrMalformed = errors.New("malformed DHCP message")

// Decode decodes a message. It does not retain b. The error wraps [ErrMalformed].
func Decode(b []byte) (*Message, error) {
	if len(b) < optionsAt || len(b) > maxLen {
		return nil, fmt.Errorf("%w: %d bytes (%d to %d)", ErrMalformed, len(b), optionsAt, maxLen)
	}
	p, err := dhcpv4.FromBytes(append(slices.Clone(b), optEnd)) // some servers omit the end
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	known := p.OpCode == dhcpv4.OpcodeBootRequest || p.OpCode == dhcpv4.OpcodeBootReply
	if !known || p.HWType != iana.HWTypeEthernet || len(p.ClientHWAddr) != 6 {
		return nil, fmt.Errorf("%w: op %d, hardware type %d with %d bytes",
			ErrMalformed, p.OpCode, p.HWType, len(p.ClientHWAddr))
	}
	m := &Message{
		Reply: p.OpCode == dhcpv4.OpcodeBootReply, XID: binary.BigEndian.Uint32(p.TransactionID[:]),
		Secs: p.NumSeconds, Broadcast: p.Flags&broadcastFlag != 0,
		Client: specified(p.ClientIPAddr), Your: specified(p.YourIPAddr),
		MAC: p.ClientHWAddr, Options: p.Options,
	}
	// RFC 2131 section 4.1: the file field comes first, then the server name. Package dhcpv4 does
	// not decode them.
	if v := m.Get(OptOverload); len(v) == 1 {
		if v[0]&1 != 0 {
			err = m.Options.FromBytes(slices.Clone(b[fileAt : fileAt+128]))
		}
		if v[0]&2 != 0 {
			err = errors.Join(err, m.Options.FromBytes(slices.Clone(b[snameAt:snameAt+64])))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if m.Type() == 0 {
		return nil, fmt.Errorf("%w: no type", ErrMalformed)
	}
	return m, nil
}

// specified returns an address of a message. It is invalid if the message has 0.0.0.0.
func specified(ip net.IP) netip.Addr {
	if a, _ := netip.AddrFromSlice(ip); !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}

// Text returns an option as text, see [client.Text].
func (m *Message) Text(code byte) string { return client.Text(m.Get(code)) }
