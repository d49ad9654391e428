// Package bandwidth limits the traffic of a container by token buckets: what it receives on the host's end of its veth pair,
// what it sends on an ifb that filters hand its packets to. Limits for some networks only are filters too, so that a bucket
// never has to tell packets apart.
package bandwidth

import _ "embed"

//go:embed doc.md
var doc string
