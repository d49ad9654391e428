// Package ovs connects containers to a bridge of Open vSwitch, each through a veth pair: as access
// port, as trunk port, or as member of a VXLAN segment that spans several nodes.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK. This package
// implements the options and the flow. It knows neither OVSDB nor its protocol: the program
// cmd/tenon-ovs provides the [Switch].
package ovs

import _ "embed"

//go:embed doc.md
var doc string
