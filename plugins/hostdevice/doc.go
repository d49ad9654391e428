// Package hostdevice moves a network device of the host into a container, and back to the host on
// DEL. Devices that a user-space driver (DPDK) uses are not moved; the plugin only allocates
// addresses for them.
//
// Package attach implements addresses, routes, GC and CHECK, and package kernel moves links. This
// package finds the device, records its state in the host, and recognises it later in any namespace
// and under any name.
package hostdevice

import _ "embed"

//go:embed doc.md
var doc string
