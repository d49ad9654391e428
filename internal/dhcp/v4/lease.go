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

// Lease is an address with the settings that a server has granted to a client. It is stored as
// JSON.
type Lease struct {
	Address netip.Prefix `json:"address"` // with the prefix length of its network
	Server  netip.Addr   `json:"server"`  // invalid if unknown
	Routers []netip.Addr `json:"routers,omitempty"`
	// Routes come in addition to the default route, or replace it: see Classless.
	Routes []Route `json:"routes,omitempty"`
	// Classless reports that Routes come from option 121. Then the routers do not yield a default
	// route (RFC 3442).
	Classless bool         `json:"classless,omitempty"`
	MTU       int          `json:"mtu,omitempty"` // bytes; 0 if the server sent none
	DNS       []netip.Addr `json:"dns,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	Search    []string     `json:"search,omitempty"`

	// Renew (T1) is when the client asks the server to renew the lease, and Rebind (T2) when it
	// asks any server, both slightly before the server's times. Expires is the end of the lease.
	// Zero stands for never.
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
	return l.Address == o.Address && slices.Equal(l.Routers, o.Routers) &&
		slices.Equal(l.Routes, o.Routes) &&
		l.Classless == o.Classless && l.MTU == o.MTU &&
		slices.Equal(l.DNS, o.DNS) && l.Domain == o.Domain && slices.Equal(l.Search, o.Search)
}

// defaultTime is the time of a lease without option 51, as in the upstream plugin.
const defaultTime = time.Hour

// minMTU is the MTU that every link supports (RFC 791). RFC 2132 section 5.1 does not allow less
// than 68.
const minMTU = 68

// leaseOf decodes the lease of an ACK. Its times count from the request (RFC 2131 section 4.4.1).
func leaseOf(m *Message, asked time.Time) (Lease, error) {
	address, err := addressOf(m)
	if err != nil {
		return Lease{}, err
	}
	l := Lease{Address: address, DNS: m.addrs(OptDNS), Domain: m.Text(OptDomainName),
		Search: client.Names(m.Get(OptSearch))}
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

// addressOf decodes the address and its network, and refuses an address that no node can have.
func addressOf(m *Message) (p netip.Prefix, err error) {
	mask := m.Get(OptSubnetMask)
	if len(mask) != 4 {
		return p, errors.New("the server gave no subnet mask")
	}
	length, _ := net.IPMask(mask).Size() // 0 for a mask with gaps, too
	if length == 0 {
		return p, fmt.Errorf("the server gave the subnet mask %v", net.IP(mask))
	}
	if !usable(m.Your) {
		return p, fmt.Errorf("the server gave the address %v", m.Your)
	}
	p = netip.PrefixFrom(m.Your, length)
	if length < 31 && !(p.Contains(m.Your.Prev()) && p.Contains(m.Your.Next())) {
		return p, fmt.Errorf("the server gave %s, which is the address of the network or its broadcast address", p)
	}
	return p, nil
}

// setRouters keeps the routers that the client can reach. With a mask of 32 bits, which clouds use,
// all routers are on the link; with option 121 the routes define how to reach them. In all other
// cases, a router outside of the network is an error; if all routers are outside, the address or
// the mask is wrong.
func (l *Lease) setRouters(list []netip.Addr) error {
	l.Routers = slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool {
		return a == l.Address.Addr() || l.Address.Bits() < 32 && !l.Classless &&
			!l.Address.Contains(a)
	})
	if len(list) > 0 && len(l.Routers) == 0 && !l.Classless {
		return fmt.Errorf("the server gave %s and the router %s, which is not another node of that network", l.Address, list[0])
	}
	return nil
}

// setTimes decodes options 51, 58 and 59. It ignores times in the wrong order (T1 > T2 > end).
func (l *Lease) setTimes(m *Message, asked time.Time) {
	all, ok := m.Duration(OptLeaseTime)
	if !ok || all == 0 {
		all = defaultTime
	}
	if all == client.Infinite {
		return
	}
	renew, rebind := all/2, all/20*17 // RFC 2131 section 4.4.5; multiplying first would overflow
	if d, ok := m.Duration(OptRebindingTime); ok && d > 0 && d < all {
		rebind = d
	}
	if d, ok := m.Duration(OptRenewalTime); ok && d > 0 && d < rebind {
		renew = d
	}
	l.Renew, l.Rebind, l.Expires = asked.Add(min(renew, rebind)), asked.Add(rebind), asked.Add(all)
}

// Expired reports whether the lease has expired.
func (l Lease) Expired(now time.Time) bool { return !l.Expires.IsZero() && !now.Before(l.Expires) }

// usable reports whether a node can have the address: it is not in 0.0.0.0/8 or 127.0.0.0/8, and
// neither multicast nor reserved.
func usable(a netip.Addr) bool {
	return a.Is4() && !a.IsLoopback() && a.As4()[0] > 0 && a.As4()[0] < 224
}

// route returns a route. ok is false if no network can have the destination, or no node the
// router's address; 0.0.0.0 stands for no router.
func route(dst netip.Prefix, gateway netip.Addr) (r Route, ok bool) {
	a := dst.Addr()
	return Route{dst, gateway}, (usable(a) || a.As4()[0] == 0 && dst.Bits() < 8) &&
		(gateway.IsUnspecified() || usable(gateway))
}

// classless decodes option 121 (RFC 3442): for each route the prefix length, the significant bytes
// of the network, and the router. It returns nil for a list with an error.
func classless(b []byte) (routes []Route) {
	for len(b) > 0 {
		length := int(b[0])
		n := (length + 7) / 8
		if length > 32 || len(b) < 1+n+4 {
			return nil
		}
		var dst [4]byte
		copy(dst[:], b[1:1+n])
		if r, ok := route(netip.PrefixFrom(netip.AddrFrom4(dst), length).Masked(),
			netip.AddrFrom4([4]byte(b[1+n:]))); ok {
			routes = append(routes, r)
		}
		b = b[1+n+4:]
	}
	return routes
}

// classful decodes option 33 (RFC 2132 section 5.8): pairs of a destination, with the prefix length
// of its class, and a router.
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
