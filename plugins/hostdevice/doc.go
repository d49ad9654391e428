// Package hostdevice gives a container a network device of the host, and the host its device back on DEL. Devices that
// user space drives (DPDK) stay where they are and only get addresses.
//
// Addresses, routes, GC and CHECK are those of package attach, moving a link is package kernel's; what is here is how a device is
// found, what is remembered of it, and how it is recognised wherever it has got to.
package hostdevice

import _ "embed"

//go:embed doc.md
var doc string
