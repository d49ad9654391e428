package v6

import (
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// Lease is a set of addresses and settings that a server has granted to a client. It is stored as
// JSON.
type Lease struct {
	// Addresses have prefix length 128, because routers advertise the network. A stateless
	// lease has none.
	Addresses []Address    `json:"addresses,omitempty"`
	Server    DUID         `json:"server"` // of the lease
	DNS       []netip.Addr `json:"dns,omitempty"`
	Search    []string     `json:"search,omitempty"`

	// Renew is when the client asks the server to renew the lease (T1) or, if stateless, any
	// server for its settings. Rebind (T2) is when it asks any server to renew the lease. Both
	// are slightly before the server's times. Zero stands for never.
	Renew  time.Time `json:"renew,omitzero"`
	Rebind time.Time `json:"rebind,omitzero"`
}

// Address is an address with its preferred and valid lifetimes in the kernel (RFC 4862 section
// 5.5.4): the end of its use for new connections, and the end of its validity. Zero stands for no
// end.
type Address struct {
	Addr      netip.Addr `json:"addr"`
	Preferred time.Time  `json:"preferred,omitzero"`
	Valid     time.Time  `json:"valid,omitzero"`
}

// Same reports whether two leases are equal except for their servers and times.
func (l Lease) Same(o Lease) bool {
	return slices.Equal(l.addrs(), o.addrs()) && slices.Equal(l.DNS, o.DNS) &&
		slices.Equal(l.Search, o.Search)
}

func (l Lease) addrs() (list []netip.Addr) {
	for _, a := range l.Addresses {
		list = append(list, a.Addr)
	}
	return list
}

// Prefixes returns the addresses in the form of an interface, with prefix length 128: DHCPv6 does
// not say which other addresses are on the link. It returns nil for a nil lease.
func (l *Lease) Prefixes() (list []netip.Prefix) {
	if l == nil {
		return nil
	}
	for _, a := range l.Addresses {
		list = append(list, netip.PrefixFrom(a.Addr, 128))
	}
	return list
}

// Expired reports whether all addresses have expired. A stateless lease does not expire.
func (l Lease) Expired(now time.Time) bool {
	return len(l.Addresses) > 0 && len(l.without(now).Addresses) == 0
}

// without returns the lease without the addresses that have expired.
func (l Lease) without(now time.Time) Lease {
	return l.keep(func(a Address) bool { return a.Valid.IsZero() || now.Before(a.Valid) })
}

func (l Lease) keep(keep func(Address) bool) Lease {
	l.Addresses = slices.DeleteFunc(slices.Clone(l.Addresses),
		func(a Address) bool { return !keep(a) })
	return l
}

// ends returns the expiry of the first address to expire; zero stands for never.
func (l Lease) ends() (t time.Time) {
	for _, a := range l.Addresses {
		t = client.Earliest(t, a.Valid)
	}
	return t
}

// in returns the time after a duration, or the zero time for an infinite one.
func in(now time.Time, d time.Duration) time.Time {
	if d == client.Infinite {
		return time.Time{}
	}
	return now.Add(d)
}

// settingsOf returns the settings of a reply.
func settingsOf(r *Message) Lease {
	return Lease{Server: DUID(r.Get(dhcpv6.OptionServerID)),
		DNS:    r.addrs(dhcpv6.OptionDNSRecursiveNameServer),
		Search: client.Names(r.Get(dhcpv6.OptionDomainSearchList))}
}

// leaseOf decodes the lease of a reply. Addresses of the previous lease stay if the reply does not
// mention them (RFC 8415 section 18.2.10.1).
func leaseOf(r *Message, a ia, now time.Time, before []Address) Lease {
	l := settingsOf(r)
	l.Addresses = slices.Clone(before)
	shortest, end := client.Infinite, client.Infinite // preferred and valid
	for _, given := range a.addresses {
		i := slices.IndexFunc(l.Addresses, func(a Address) bool { return a.Addr == given.addr })
		if given.valid == 0 {
			if i >= 0 {
				l.Addresses = slices.Delete(l.Addresses, i, i+1)
			}
			continue
		}
		if i < 0 {
			i = len(l.Addresses)
			if i == maxAddresses {
				continue
			}
			l.Addresses = append(l.Addresses, Address{})
		}
		l.Addresses[i] = Address{given.addr, in(now, given.preferred), in(now, given.valid)}
		end = min(end, given.valid)
		if given.preferred > 0 {
			shortest = min(shortest, given.preferred)
		}
	}
	l.setTimes(a, now, min(shortest, end), end)
	return l
}

// setTimes sets T1 and T2 to the times of the server, or to 0.5 and 0.8 of the shortest preferred
// time (RFC 8415 section 21.4), or of the shortest valid time if they would otherwise be too late.
func (l *Lease) setTimes(a ia, now time.Time, shortest, end time.Duration) {
	t1, t2 := a.t1, a.t2
	if t2 == 0 {
		t2 = max(part(shortest, 8), t1)
	}
	if t1 == 0 {
		t1 = min(part(shortest, 5), t2)
	}
	if t2 >= end {
		t2 = part(end, 8)
	}
	if t1 > t2 {
		t1 = part(end, 5)
	}
	l.Renew, l.Rebind = in(now, t1), in(now, t2)
}

// part returns tenths of a time.
func part(d time.Duration, tenths int) time.Duration {
	if d == client.Infinite {
		return d
	}
	return d / 10 * time.Duration(tenths)
}
