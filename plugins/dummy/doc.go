// Package dummy gives a container an interface that is always up and carries no traffic. It holds
// addresses that belong to no other interface, such as a service address.
//
// Package attach implements everything except the creation of the link.
package dummy

import _ "embed"

//go:embed doc.md
var doc string
