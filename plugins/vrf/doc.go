// Package vrf makes the interface of a container a member of a VRF (Virtual Routing and Forwarding)
// device of the container, which has a routing table of its own. Interfaces of one VRF share its
// table; interfaces of different VRFs can have the same addresses.
//
// All changes are in the container's namespace. A VRF has no owner tag, because its members share
// it; DEL deletes it after the last one.
package vrf

import _ "embed"

//go:embed doc.md
var doc string
