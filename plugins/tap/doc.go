// Package tap gives a container a tap device for a virtual machine that runs in the container. The
// device is persistent; the user and the group of the configuration can open it.
//
// Package attach implements IPAM, addresses, routes, DEL, GC and most of CHECK, and package kernel
// the ioctls; this package translates the configuration.
package tap

import _ "embed"

//go:embed doc.md
var doc string
