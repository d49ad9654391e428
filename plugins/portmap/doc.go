// Package portmap forwards ports of the node to a container. It is a chained plugin: the plugins
// before it have given the container its addresses.
//
// With nftables the mappings are elements of the maps of package nft; package chained finds,
// removes and checks them. With iptables they are the rules of the upstream plugin.
package portmap

import _ "embed"

//go:embed doc.md
var doc string
