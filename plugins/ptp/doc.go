// Package ptp connects each container to the node by a routed link of its own: a veth pair without
// a bridge. The container reaches every destination, including its own network, through a gateway
// address on the host-side veth; the node has a route to each address of the container.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK; this package
// implements the point-to-point link.
package ptp

import _ "embed"

//go:embed doc.md
var doc string
