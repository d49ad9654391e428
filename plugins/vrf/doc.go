// Package vrf puts the interface of a container into a VRF device (Virtual Routing and Forwarding) of the container, with a
// routing table of its own. Several interfaces can be members of one VRF, or of several with the same addresses.
//
// Everything is in the container's namespace. A VRF is shared by its members, whose it is follows from them; it is there as
// long as there is one.
package vrf

import _ "embed"

//go:embed doc.md
var doc string
