// Package firewall allows a container's traffic through the host's firewall, and isolates bridges,
// or all containers of a bridge, from each other.
//
// With every backend, sets of table inet tenon record the attachments of addresses and bridges,
// because the rules of iptables and the sources of firewalld contain addresses only.
package firewall

import _ "embed"

//go:embed doc.md
var doc string
