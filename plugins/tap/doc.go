// Package tap gives a container a tap device, for a virtual machine that runs in it. The device outlives the call and can be
// opened by the user and the group of the configuration.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach, the ioctls are in package
// kernel; what is here is the configuration.
package tap

import _ "embed"

//go:embed doc.md
var doc string
