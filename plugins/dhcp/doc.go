// Package dhcp is the IPAM plugin dhcp: it asks a daemon for an address, which gets it from a
// server on the link of the container, renews it, and gives it back. The daemon is in package
// internal/dhcp/daemon.
package dhcp

import _ "embed"

//go:embed doc.md
var doc string
