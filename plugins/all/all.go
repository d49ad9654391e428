// Package all lists the plugins that are built into the tenon executable, a line each. It holds nothing else.
package all

import (
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
	"github.com/tenon-cni/tenon/plugins/bridge"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
	"github.com/tenon-cni/tenon/plugins/loopback"
	"github.com/tenon-cni/tenon/plugins/ptp"
	"github.com/tenon-cni/tenon/plugins/sbr"
	"github.com/tenon-cni/tenon/plugins/static"
	"github.com/tenon-cni/tenon/plugins/tuning"
)

// Plugins are the definitions, by name.
var Plugins = []plugin.Definition{
	bandwidth.Plugin,
	bridge.Plugin,
	hostlocal.Plugin,
	loopback.Plugin,
	ptp.Plugin,
	sbr.Plugin,
	static.Plugin,
	tuning.Plugin,
}
