// Package sbr routes by source: replies of a container with several interfaces leave by the interface that they came in on.
// Each address of an interface gets a routing table with the routes of the interface, and a policy rule that leads what
// comes from the address there.
//
// Everything is in the container's namespace. Rules and what is added to the routes have the protocol of package kernel;
// which attachment a rule is for its address tells.
package sbr

import _ "embed"

//go:embed doc.md
var doc string
