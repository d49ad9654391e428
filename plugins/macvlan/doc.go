// Package macvlan gives a container a macvlan interface: an interface with its own MAC address in
// the network of a parent interface. The host and the container cannot reach each other through it.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK; this package
// creates and verifies the macvlan link.
package macvlan

import _ "embed"

//go:embed doc.md
var doc string
