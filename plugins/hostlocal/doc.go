// Package hostlocal is the IPAM plugin host-local: it hands out addresses of ranges that belong to this host alone,
// and keeps who has which in files, in the layout of the reference plugin, so that either can take over from the
// other.
//
// Package ipam has ranges and the search for an address, package filestore the files. This package has the configuration,
// and the pools of addresses that configurations and files make together.
package hostlocal

import _ "embed"

//go:embed doc.md
var doc string
