// Package all lists the plugins that are built into the tenon binary, and plugins that are programs
// of their own. It also repairs their rules and reports the use of their address pools.
package all

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
	"github.com/tenon-cni/tenon/plugins/bridge"
	"github.com/tenon-cni/tenon/plugins/cluster"
	"github.com/tenon-cni/tenon/plugins/dhcp"
	"github.com/tenon-cni/tenon/plugins/dummy"
	"github.com/tenon-cni/tenon/plugins/firewall"
	"github.com/tenon-cni/tenon/plugins/hostdevice"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
	"github.com/tenon-cni/tenon/plugins/ipvlan"
	"github.com/tenon-cni/tenon/plugins/loopback"
	"github.com/tenon-cni/tenon/plugins/macvlan"
	"github.com/tenon-cni/tenon/plugins/portmap"
	"github.com/tenon-cni/tenon/plugins/ptp"
	"github.com/tenon-cni/tenon/plugins/sbr"
	"github.com/tenon-cni/tenon/plugins/static"
	"github.com/tenon-cni/tenon/plugins/tap"
	"github.com/tenon-cni/tenon/plugins/tuning"
	"github.com/tenon-cni/tenon/plugins/vlan"
	"github.com/tenon-cni/tenon/plugins/vrf"
)

// Plugins are the plugins in the tenon binary, sorted by name.
var Plugins = []plugin.Definition{
	bandwidth.Plugin,
	bridge.Plugin,
	cluster.Plugin,
	dhcp.Plugin,
	dummy.Plugin,
	firewall.Plugin,
	hostdevice.Plugin,
	hostlocal.Plugin,
	ipvlan.Plugin,
	loopback.Plugin,
	macvlan.Plugin,
	portmap.Plugin,
	ptp.Plugin,
	sbr.Plugin,
	static.Plugin,
	tap.Plugin,
	tuning.Plugin,
	vlan.Plugin,
	vrf.Plugin,
}

// Repair restores the missing rules of attachments: first the nftables rules in one transaction,
// then the rules of the other backends. It can be used as network.Client.Repair. It skips plugins
// that are not Tenon's, and containers that no longer exist.
func Repair(ctx context.Context, calls []invoke.Call) error {
	outcomes, err := repair.Run(ctx, Described(), calls)
	errs := []error{err}
	for i, o := range outcomes {
		if o.Failed() {
			errs = append(errs, fmt.Errorf("%s/%s %s: %w", calls[i].Env.ContainerID,
				calls[i].Env.IfName, calls[i].Path, o.Err))
		}
	}
	return errors.Join(errs...)
}
