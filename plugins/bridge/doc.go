// Package bridge connects containers to a Linux bridge on the node, each through a veth pair. It
// creates the bridge on first use and never removes it. The bridge can be the gateway of the
// containers' networks and masquerade their addresses.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK; this package
// implements the bridge.
package bridge

import _ "embed"

//go:embed doc.md
var doc string
