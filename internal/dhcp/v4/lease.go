package v4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// Lease is an address with the settings that a server lent to a client. It is saved as JSON.
type Lease struct {
	Address netip.Prefix `json:"address"` // with the length of its network
	Server  netip.Addr   `json:"server"`  // not valid: unknown
	Routers []netip.Addr `json:"routers,omitempty"`
	// Routes come in addition to the default route, or replace it: see Classless.
	Routes []Route `json:"routes,omitempty"`
	// Classless says that Routes come from option 121: then the routers are not for a default route
	// (RFC 3442).
	Classless bool         `json:"classless,omitempty"`
	MTU       int          `json:"mtu,omitempty"` // bytes; 0: not given
	DNS       []netip.Addr `json:"dns,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	Search    []string     `json:"search,omitempty"`

	// When the client asks the server to renew the lease (T1) and when any server (T2), both a
	// little before the times of the server, and the end of the lease. Zero: never.
	Renew   time.Time `json:"renew,omitzero"`
	Rebind  time.Time `json:"rebind,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// Route is a route of a lease. The gateway 0.0.0.0 means that the network is on the link.
type Route struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gateway"`
}

// Same reports whether two leases are equal except for their servers and times.
func (l Lease) Same(o Lease) bool {
	return l.Address == o.Address && slices.Equal(l.Routers, o.Routers) && slices.Equal(l.Routes, o.Routes) &&
		l.Classless == o.Classless && l.MTU == o.MTU &&
		slices.Equal(l.DNS, o.DNS) && l.Domain == o.Domain && slices.Equal(l.Search, o.Search)
}

// defaultTime is the time of a lease without option 51, as in the upstream plugin.
const defaultTime = time.Hour

// minMTU is the MTU that every link has (RFC 791); RFC 2132 section 5.1 allows no less than 68.
const minMTU = 68

// leaseOf reads the lease of an ACK. Its times count from the request (RFC 2131 section 4.4.1).
func leaseOf(m *Message, asked time.Time) (Lease, error) {
	address, err := addressOf(m)
	if err != nil {
		return Lease{}, err
	}
	l := Lease{Address: address, DNS: m.addrs(OptDNS), Domain: m.Text(OptDomainName), Search: client.Names(m.Get(OptSearch))}
	if server, ok := m.Addr(OptServerID); ok && usable(server) {
		l.Server = server
	}
	if mtu := m.Get(OptMTU); len(mtu) == 2 && binary.BigEndian.Uint16(mtu) >= minMTU {
		l.MTU = int(binary.BigEndian.Uint16(mtu))
	}
	if l.Routes = classless(m.Get(OptClasslessRoute)); len(l.Routes) > 0 {
		l.Classless = true
	} else {
		l.Routes = classful(m.Get(OptStaticRoutes))
	}
	l.setTimes(m, asked)
	return l, l.setRouters(m.addrs(OptRouter))
}

// addressOf reads the address and its network, and refuses an address that no node can have.
func addressOf(m *Message) (p netip.Prefix, err error) {
	mask := m.Get(OptSubnetMask)
	if len(mask) != 4 {
		return p, errors.New("the server gave no subnet mask")
	}
	length, _ := net.IPMask(mask).Size() // 0 also for a mask with gaps
	if length == 0 {
		return p, fmt.Errorf("the server gave the subnet mask %v", net.IP(mask))
	}
	if !usable(m.Your) {
		return p, fmt.Errorf("the server gave the address %v", m.Your)
	}
	p = netip.PrefixFrom(m.Your, length)
	if length < 31 && !(p.Contains(m.Your.Prev()) && p.Contains(m.Your.Next())) {
		return p, fmt.Errorf("the server gave %s, which stands for the network or for all of its nodes", p)
	}
	return p, nil
}

// setRouters keeps the routers that the client can reach. With a mask of 32 bits, which clouds
// give, all routers are on the link; with option 121 its routes say how to reach them. A router
// outside of the network is a mistake otherwise; if all routers are, address or mask are wrong.
func (l *Lease) setRouters(list []netip.Addr) error {
	l.Routers = slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool {
		return a == l.Address.Addr() || l.Address.Bits() < 32 && !l.Classless && !l.Address.Contains(a)
	})
	if len(list) > 0 && len(l.Routers) == 0 && !l.Classless {
		return fmt.Errorf("the server gave %s, and the router %s, which is not another node of that network", l.Address, list[0])
	}
	return nil
}

// setTimes reads options 51, 58 and 59. It ignores times in the wrong order (T1 > T2 > end).
func (l *Lease) setTimes(m *Message, asked time.Time) {
	all, ok := m.Duration(OptLeaseTime)
	if !ok || all == 0 {
		all = defaultTime
	}
	if all == client.Infinite {
		return
	}
	renew, rebind := all/2, all/20*17 // RFC 2131 section 4.4.5; the other way round it overflows
	if d, ok := m.Duration(OptRebindingTime); ok && d > 0 && d < all {
		rebind = d
	}
	if d, ok := m.Duration(OptRenewalTime); ok && d > 0 && d < rebind {
		renew = d
	}
	l.Renew, l.Rebind, l.Expires = asked.Add(min(renew, rebind)), asked.Add(rebind), asked.Add(all)
}

// Expired reports whether the lease has ended.
func (l Lease) Expired(now time.Time) bool { return !l.Expires.IsZero() && !now.Before(l.Expires) }

// usable reports whether a node can have the address: it is not in 0.0.0.0/8 or 127.0.0.0/8, no
// multicast address, and not reserved.
func usable(a netip.Addr) bool {
	return a.Is4() && !a.IsLoopback() && a.As4()[0] > 0 && a.As4()[0] < 224
}

// route returns a route unless no network can have the destination, or no node the address of the
// router; 0.0.0.0 is no router.
func route(dst netip.Prefix, gateway netip.Addr) (r Route, ok bool) {
	a := dst.Addr()
	return Route{dst, gateway}, (usable(a) || a.As4()[0] == 0 && dst.Bits() < 8) && (gateway.IsUnspecified() || usable(gateway))
}

// classless reads option 121 (RFC 3442): the length of the network, as many bytes of the network as
// that needs, the router. It returns nothing for a list with a mistake.
func classless(b []byte) (routes []Route) {
	for len(b) > 0 {
		length := int(b[0])
		n := (length + 7) / 8
		if length > 32 || len(b) < 1+n+4 {
			return nil
		}
		var dst [4]byte
		copy(dst[:], b[1:1+n])
		if r, ok := route(netip.PrefixFrom(netip.AddrFrom4(dst), length).Masked(), netip.AddrFrom4([4]byte(b[1+n:]))); ok {
			routes = append(routes, r)
		}
		b = b[1+n+4:]
	}
	return routes
}

// classful reads option 33 (RFC 2132 section 5.8): pairs of a destination, with the network of its
// class, and a router.
func classful(b []byte) (routes []Route) {
	for ; len(b) >= 8; b = b[8:] {
		length := 24
		switch {
		case b[0] < 128:
			length = 8
		case b[0] < 192:
			length = 16
		}
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), length).Masked()
		if r, ok := route(dst, netip.AddrFrom4([4]byte(b[4:]))); ok {
			routes = append(routes, r)
		}
	}
	return routes
}
