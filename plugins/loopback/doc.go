// Package loopback sets the container's loopback interface up, and down again on DEL. Runtimes run
// it as a network of its own before all other networks.
package loopback

import _ "embed"

//go:embed doc.md
var doc string
