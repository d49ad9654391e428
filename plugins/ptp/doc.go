// Package ptp gives a container a routed link of its own to the host: a pair of veth interfaces without a bridge. The
// container reaches everything, its own network too, through a gateway address on the host's end; the host has a route to
// each address of the container.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach; what is here is what makes
// the link a point-to-point one.
package ptp

import _ "embed"

//go:embed doc.md
var doc string
