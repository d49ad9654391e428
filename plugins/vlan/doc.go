// Package vlan gives a container a VLAN (IEEE 802.1Q) of an interface of the host: what the container sends leaves by that
// interface with the tag, and what arrives there with the tag is the container's.
//
// Finding the parent, address management, addresses, routes, DEL, GC and most of CHECK are those of package attach.
package vlan

import _ "embed"

//go:embed doc.md
var doc string
