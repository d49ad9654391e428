package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// result is what a lease means to a container. priority is the metric of its routes.
func result(l *v4.Lease, priority int) *cni.Result {
	ip := cni.IP{Address: l.Address}
	if len(l.Routers) > 0 {
		ip.Gateway = l.Routers[0]
	}
	r := &cni.Result{IPs: []cni.IP{ip}}
	for _, route := range l.Routes {
		out := cni.Route{Dst: route.Dst, GW: route.Gateway, Priority: priority}
		if route.Gateway.IsUnspecified() {
			out.Scope = cni.Some(kernel.ScopeLink)
		}
		r.Routes = append(r.Routes, out)
	}
	if !l.Classless && ip.Gateway.IsValid() {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		r.Routes = append(r.Routes, cni.Route{Dst: all, GW: ip.Gateway, Priority: priority})
	}
	return r
}

// change makes an interface have what a lease says, instead of what another said; one of them may be nil. What the plugins
// of the network have added stays, and an MTU counts only where the server was asked for it: those plugins have set one.
func (s *spot) change(ctx context.Context, before, after *v4.Lease, of *Record) error {
	return s.visit(ctx, func(space *kernel.Space) error {
		had, shall := routes(before, of.Priority), routes(after, of.Priority)
		moved := before == nil || after == nil || before.Address != after.Address
		if !moved && !before.Server.IsValid() { // what another daemon has got, see goOn: the routes are there since ADD
			had = shall
		}
		if after != nil {
			if err := space.Up(s.link); err != nil {
				return err
			}
		}
		if after != nil && moved {
			if err := space.AddAddr(s.link, after.Address); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
		for _, r := range had {
			if !slices.Contains(shall, r) {
				if err := space.DelRoute(s.link, r); err != nil {
					return err
				}
			}
		}
		for _, r := range shall {
			if moved || !slices.Contains(had, r) {
				if err := space.AddRoute(s.link, r); err != nil {
					return err
				}
			}
		}
		asked := slices.Contains(of.Parameters, v4.OptMTU)
		if asked && after != nil && after.MTU > 0 && (before == nil || before.MTU != after.MTU) {
			if err := space.SetMTU(s.link, after.MTU); err != nil {
				return err
			}
		}
		if before != nil && moved {
			return space.DelAddr(s.link, before.Address)
		}
		return nil
	})
}

// routes are those of a lease for the kernel.
func routes(l *v4.Lease, priority int) (list []kernel.Route) {
	if l == nil {
		return nil
	}
	for _, r := range result(l, priority).Routes {
		list = append(list, kernel.Route{Dst: r.Dst, GW: r.GW, Scope: r.Scope.Value, Priority: r.Priority})
	}
	return list
}
