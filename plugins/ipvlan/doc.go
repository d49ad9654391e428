// Package ipvlan gives a container an interface of its own in the network of a parent interface: a sub-interface with the
// parent's hardware address, made in the container. Behind other plugins it can take parent and addresses from their result.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach; what is here is what makes
// the link an ipvlan.
package ipvlan

import _ "embed"

//go:embed doc.md
var doc string
