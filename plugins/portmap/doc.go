// Package portmap forwards ports of the host to a container. It is chained: the container has its addresses from the plugins
// before.
//
// With nftables the mappings are elements of the maps of package nft; finding, removing and checking them is done by package
// chained. With iptables they are the rules of the reference plugin.
package portmap

import _ "embed"

//go:embed doc.md
var doc string
