// Package firewall lets a container's addresses through the host's firewall and keeps bridges, or all containers of a
// bridge, apart.
//
// Who has an address and who is behind a bridge is written down in the sets of table inet tenon, whatever the backend: the
// rules of iptables and the sources of firewalld name addresses only.
package firewall

import _ "embed"

//go:embed doc.md
var doc string
