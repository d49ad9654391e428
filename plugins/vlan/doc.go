// Package vlan gives a container a VLAN (IEEE 802.1Q) of a parent interface: packets of the
// container leave the parent with the tag of the VLAN, and packets that arrive with that tag go to
// the container.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK, and looks up the
// parent.
package vlan

import _ "embed"

//go:embed doc.md
var doc string
