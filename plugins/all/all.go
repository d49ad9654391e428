// Package all lists the plugins that are built into the tenon executable, a line each, repairs what they have made, and says
// how much of their address pools is used. It holds nothing else.
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

// Plugins are the definitions, by name.
var Plugins = []plugin.Definition{
	bandwidth.Plugin,
	bridge.Plugin,
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

// Repair puts back what plugins here have made in the ruleset of the host for attachments, and others have taken away: in
// one transaction, then what the other backends have. It suits network.Client.Repair. Plugins that are not Tenon's are
// passed over, and so are containers that are gone.
func Repair(ctx context.Context, calls []invoke.Call) error {
	outcomes, err := repair.Run(ctx, Plugins, calls)
	errs := []error{err}
	for i, o := range outcomes {
		if o.Failed() {
			errs = append(errs, fmt.Errorf("%s/%s %s: %w", calls[i].Env.ContainerID, calls[i].Env.IfName, calls[i].Path, o.Err))
		}
	}
	return errors.Join(errs...)
}
