// Package hostlocal implements the IPAM plugin host-local. It allocates addresses from ranges that
// belong to this node alone, and keeps reservations in files with upstream's layout, so that both
// implementations can work on one directory.
//
// Package ipam implements ranges and the search for a free address, package filestore the files.
// This package implements the configuration, and lists the pools of addresses for commands.
package hostlocal

import _ "embed"

//go:embed doc.md
var doc string
