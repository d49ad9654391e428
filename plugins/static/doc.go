// Package static is the IPAM plugin static: it returns the addresses, routes and name service that the configuration
// says, or the addresses asked for at run time. It keeps no state, so nobody notices when an address is given twice.
package static

import _ "embed"

//go:embed doc.md
var doc string
