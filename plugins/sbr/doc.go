// Package sbr implements source-based routing: replies of a container with several interfaces leave
// through the interface on which the requests arrived. Each address of an interface gets a routing
// table with the routes of the interface, and a policy rule that selects the table by source
// address.
//
// All changes are in the container's namespace. Rules and added routes have the protocol of package
// kernel; the address of a rule identifies its attachment.
package sbr

import _ "embed"

//go:embed doc.md
var doc string
