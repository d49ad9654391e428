// Package bandwidth limits the traffic of a container by token buckets. Packets to the container
// pass a bucket on the host-side veth; filters redirect packets from the container to a bucket on
// an ifb. If limits apply to some networks only, filters select the packets, so that a bucket never
// distinguishes packets.
package bandwidth

import _ "embed"

//go:embed doc.md
var doc string
