// Package macvlan gives a container an interface of its own in the network of a parent interface: a sub-interface with its
// own hardware address, made in the container. The host and the container do not see one another through it.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach; what is here is what makes
// the link a macvlan.
package macvlan

import _ "embed"

//go:embed doc.md
var doc string
