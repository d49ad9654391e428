package v6

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// ia is the content of an IA_NA (RFC 8415 section 21.4).
type ia struct {
	t1, t2    time.Duration // 0 if the client decides
	addresses []iaAddress
	status    status
}

// iaAddress is an address of an IA (section 21.6). A valid time of 0 withdraws it.
type iaAddress struct {
	addr             netip.Addr
	preferred, valid time.Duration
}

// maxAddresses is the maximum number of addresses that a client accepts.
const maxAddresses = 16

// ia returns the IA with an identifier. It ignores an IA that is malformed or has T1 after T2
// (section 21.4), and an address with an error or a failure status (section 21.6).
func (m *Message) ia(id uint32) (a ia, ok bool) {
	for _, o := range m.Options {
		value := o.ToBytes()
		if o.Code() != dhcpv6.OptionIANA || len(value) < 12 ||
			binary.BigEndian.Uint32(value) != id {
			continue
		}
		a.t1, a.t2 = client.Seconds(value[4:]), client.Seconds(value[8:])
		list, err := options(value[12:])
		if err != nil || a.t1 > a.t2 && a.t2 > 0 {
			return ia{}, false
		}
		a.status = statusOf(list)
		for _, o := range list {
			if addr, ok := iaAddressOf(o); ok && len(a.addresses) < maxAddresses {
				a.addresses = append(a.addresses, addr)
			}
		}
		return a, true
	}
	return ia{}, false
}

func iaAddressOf(o dhcpv6.Option) (a iaAddress, ok bool) {
	value := o.ToBytes()
	if o.Code() != dhcpv6.OptionIAAddr || len(value) < 24 {
		return a, false
	}
	a = iaAddress{
		addr:      netip.AddrFrom16([16]byte(value)),
		preferred: client.Seconds(value[16:]),
		valid:     client.Seconds(value[20:]),
	}
	list, err := options(value[24:])
	good := err == nil && statusOf(list).code == iana.StatusSuccess
	return a, good && usable(a.addr) && a.preferred <= a.valid
}

// usable reports whether a server can grant an address.
func usable(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.Is4In6() }

// good reports whether the IA has a valid address.
func (a ia) good() bool {
	valid := func(addr iaAddress) bool { return addr.valid > 0 }
	return a.status.code == iana.StatusSuccess && slices.ContainsFunc(a.addresses, valid)
}

// newIA returns the IA that a client sends: addresses without times (RFC 8415 section 18.2).
func newIA(id uint32, list []netip.Addr) dhcpv6.Option {
	o := &dhcpv6.OptIANA{IaId: [4]byte(binary.BigEndian.AppendUint32(nil, id))}
	for _, a := range list {
		o.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice()})
	}
	return o
}
