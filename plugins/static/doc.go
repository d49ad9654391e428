// Package static implements the IPAM plugin static. It returns the addresses, routes and DNS
// settings of the configuration, or addresses that the runtime requests. It keeps no state, so it
// does not notice if an address is assigned twice.
// does not notice if an address is assigned twice.
package static

import _ "embed"

//go:embed doc.md
var doc string
