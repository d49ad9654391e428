// Package bridge connects containers to a Linux bridge of the host, each by a pair of veth interfaces. The bridge is
// made on first use and never removed. It can be the gateway of the containers' networks, hide them behind the host,
// or just be a switch.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach; what is here is the
// bridge.
package bridge

import _ "embed"

//go:embed doc.md
var doc string
