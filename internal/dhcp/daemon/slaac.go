package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

var errNoRouter = errors.New("no router has advertised a prefix for address autoconfiguration")

// acceptRouters lets the kernel configure the interface from router advertisements and manage the
// lifetimes.
func (o *openLink) acceptRouters(ctx context.Context) error {
	conf := "net/ipv6/conf/" + o.link.Name + "/"
	err := o.visit(ctx, func(space *kernel.Space) error {
		return space.Sysctl.SetAll([]kernel.Setting{
			{Key: conf + "disable_ipv6", Value: "0"},
			{Key: conf + "accept_ra", Value: "2"}, // even if the container forwards packets
			{Key: conf + "autoconf", Value: "1"},
		})
	})
	if err != nil {
		return fmt.Errorf("router advertisements: %w", err)
	}
	return nil
}

// awaitRouters waits until the kernel has an address from router advertisements, and adds it to the
// result.
func (d *Daemon) awaitRouters(
	ctx context.Context, rec *Record, passed *os.File, r *cni.Result,
) error {
	at, err := d.host.enter(ctx, rec, passed)
	if err != nil {
		return err
	}
	defer at.Close()
	wait, cancel := context.WithTimeoutCause(ctx, d.ResendTimeout, errNoRouter)
	defer cancel()
	err = at.visit(ctx, func(space *kernel.Space) error {
		return space.Addrs.WaitAutoconf(wait, at.link)
	})
	if err != nil {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	return at.addAdvertised(ctx, r)
}

// addAdvertised adds the addresses that the kernel has from router advertisements to a result, with
// the router that the kernel uses. It adds no routes, because an advertised route has a lifetime,
// and a route in a result has none.
func (o *openLink) addAdvertised(ctx context.Context, r *cni.Result) error {
	var found kernel.Autoconf
	err := o.visit(ctx, func(space *kernel.Space) (err error) {
		found, err = space.Addrs.Autoconf(o.link)
		return err
	})
	if err == nil && len(found.Addrs) == 0 {
		err = cni.Errorf(cni.CodeInternal,
			"interface %s no longer has an address from router advertisements",
			o.link.Name)
	}
	for _, p := range found.Addrs {
		r.IPs = append(r.IPs, cni.IP{Address: p, Gateway: found.Router})
	}
	return err
}
