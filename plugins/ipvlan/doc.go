// Package ipvlan gives a container an ipvlan interface: an interface in the network of a parent
// interface, with the parent's MAC address. In a chain it can take the parent and the addresses
// from the previous result.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK; this package
// creates and verifies the ipvlan link.
package ipvlan

import _ "embed"

//go:embed doc.md
var doc string
