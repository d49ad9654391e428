// Package loopback sets the container's loopback interface up, and down again on DEL. Runtimes run it as a network of its own before any other.
package loopback

import "github.com/tenon-cni/tenon/plugin"

var examples = []plugin.Example{{Name: "as runtimes write it", Config: `{
  "cniVersion": "1.0.0",
  "name": "cni-loopback",
  "type": "loopback"
}`}}
