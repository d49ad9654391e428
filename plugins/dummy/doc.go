// Package dummy gives a container an interface that is always up and carries no traffic, for addresses that have to be
// somewhere: those of a service, or of a process that others must not find in the network.
//
// Everything but the link is the work of package attach.
package dummy

import _ "embed"

//go:embed doc.md
var doc string
