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

// result returns the result of ADD for a lease. priority is the metric of its routes.
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

// apply changes the interface from one lease to another; one of them may be nil. It keeps addresses
// and routes of other plugins. It sets the MTU only if the configuration requests it, because the
// other plugins have already set one.
func (o *openLink) apply(ctx context.Context, before, after *v4.Lease, of *Record) error {
	had, want := routes(before, of.Priority), routes(after, of.Priority)
	moved := before == nil || after == nil || before.Address != after.Address
	if !moved && !before.Server.IsValid() { // see adoptForeign: ADD has set the routes
		had = want
	}
	obsolete := without(had, want)
	missing := without(want, had)
	if moved { // the kernel removes routes together with the address that they need
		missing = want
	}
	return o.visit(ctx, func(space *kernel.Space) error {
		if after != nil {
			err := space.Links.Up(o.link)
			if err == nil && moved {
				err = o.addAddresses(space, after.Address)
			}
			if err != nil {
				return err
			}
		}
		if err := o.changeRoutes(space, obsolete, missing); err != nil {
			return err
		}
		if mtu := newMTU(before, after, of); mtu > 0 {
			if err := space.Links.SetMTU(o.link, mtu); err != nil {
				return err
			}
		}
		if before != nil && moved {
			return space.Addrs.Delete(o.link, before.Address)
		}
		return nil
	})
}

// addAddresses adds addresses. The interface may already have some of them.
func (o *openLink) addAddresses(space *kernel.Space, list ...netip.Prefix) error {
	for _, p := range list {
		if err := space.Addrs.Add(o.link, p); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

func (o *openLink) changeRoutes(space *kernel.Space, obsolete, missing []kernel.Route) error {
	for _, r := range obsolete {
		if err := space.Routes.Delete(o.link, r); err != nil {
			return err
		}
	}
	for _, r := range missing {
		if err := space.Routes.Add(o.link, r); err != nil {
			return err
		}
	}
	return nil
}

// newMTU returns the MTU to set, or 0 for none.
func newMTU(before, after *v4.Lease, of *Record) int {
	same := after == nil || before != nil && before.MTU == after.MTU
	if same || !slices.Contains(of.Parameters, v4.OptMTU) {
		return 0
	}
	return after.MTU
}

// without returns the elements of list that are not in other.
func without[T comparable](list, other []T) []T {
	return slices.DeleteFunc(slices.Clone(list),
		func(e T) bool { return slices.Contains(other, e) })
}

// routes returns the routes of a lease for the kernel.
func routes(l *v4.Lease, priority int) (list []kernel.Route) {
	if l == nil {
		return nil
	}
	for _, r := range result(l, priority).Routes {
		list = append(list, kernel.Route{
			Dst: r.Dst, GW: r.GW, Scope: r.Scope.Value, Priority: r.Priority,
		})
	}
	return list
}
