package cni

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Dropped returns one sentence for each object that an encoding in version v omits.
func (r *Result) Dropped(v Version) []string { return r.express(v, nil).dropped }

// expression is the part of a result that a generation of versions can express, with a list of the
// rest.
type expression struct {
	generation generation
	from       *Result // keep the gateways of the other family that it has; may be nil
	said       Result
	dropped    []string
	lost       []string // the dropped addresses, gateways and routes
}

// express restricts r to the values that version v can express, so that an encoding in v keeps them
// all. It keeps gateways of the other family that are also in from.
//
// express keeps route members of 1.1.0 in all versions since 0.3.0, as libcni does, because CHECK
// and DEL of older networks need them. It keeps the interface members in 1.0.0 as well.
func (r *Result) express(v Version, from *Result) expression {
	e := expression{generation: v.generation(), from: from, said: Result{DNS: r.DNS}}
	if e.generation == genC {
		e.said = *r
		return e
	}
	e.interfaces(r.Interfaces)
	e.ips(r.IPs)
	e.routes(r.Routes)
	return e
}

func (e *expression) drop(format string, args ...any) {
	e.dropped = append(e.dropped, fmt.Sprintf(format, args...))
}

// lose is drop for objects that affect routing.
func (e *expression) lose(format string, args ...any) {
	e.drop(format, args...)
	e.lost = append(e.lost, e.dropped[len(e.dropped)-1])
}

func (e *expression) interfaces(all []Interface) {
	for _, i := range all {
		if e.generation == genA {
			e.drop("interface %s", i.Name)
			continue
		}
		var members []string
		if i.MTU != 0 {
			members = append(members, "mtu")
		}
		if i.SocketPath != "" {
			members = append(members, "socketPath")
		}
		if i.PciID != "" {
			members = append(members, "pciID")
		}
		if members != nil {
			e.drop("interface %s: %s", i.Name, strings.Join(members, ", "))
		}
		e.said.Interfaces = append(e.said.Interfaces,
			Interface{Name: i.Name, MAC: i.MAC, Sandbox: i.Sandbox})
	}
}

func (e *expression) ips(all []IP) {
	for _, ip := range all {
		if e.generation == genA {
			if e.said.first(ip.Address.Addr().Is4()) != nil {
				e.lose("address %s", ip.Address)
				continue
			}
			ip.Interface = Optional[int]{}
		}
		if mixed(ip.Address, ip.Gateway) && !e.from.leadsBy(ip) {
			e.lose("address %s: gateway %s", ip.Address, ip.Gateway)
			ip.Gateway = netip.Addr{}
		}
		e.said.IPs = append(e.said.IPs, ip)
	}
}

func (e *expression) routes(all []Route) {
	for _, rt := range all {
		foreign := mixed(rt.Dst, rt.GW) && (e.from == nil || !slices.Contains(e.from.Routes, rt))
		if foreign || e.generation == genA && e.said.first(rt.Dst.Addr().Is4()) == nil {
			e.lose("route %s", rt.Dst)
			continue
		}
		if e.generation == genA {
			var members []string
			for _, n := range rt.numbers() {
				if n.set {
					members = append(members, n.key)
				}
			}
			if members != nil {
				e.drop("route %s: %s", rt.Dst, strings.Join(members, ", "))
			}
			rt = Route{Dst: rt.Dst, GW: rt.GW}
		}
		e.said.Routes = append(e.said.Routes, rt)
	}
}

// leadsBy reports whether r, which may be nil, has the address with the gateway.
func (r *Result) leadsBy(ip IP) bool {
	return r != nil && slices.ContainsFunc(r.IPs, func(x IP) bool {
		return x.Address == ip.Address && x.Gateway == ip.Gateway
	})
}

// first returns the first address of a family, or nil if there is none.
func (r *Result) first(is4 bool) *IP {
	for i, ip := range r.IPs {
		if ip.Address.Addr().Is4() == is4 {
			return &r.IPs[i]
		}
	}
	return nil
}

// mixed reports whether a gateway has a different family than its destination, which only 1.0.0 and
// later allow. An IPv4-mapped address counts as IPv6.
func mixed(p netip.Prefix, gateway netip.Addr) bool {
	return p.IsValid() && gateway.IsValid() && p.Addr().Is4() != gateway.Is4()
}
