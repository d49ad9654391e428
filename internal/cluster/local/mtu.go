package local

import (
	"cmp"
	"encoding/json"
)

// MTU returns the MTU, in bytes, of the interfaces of a container: the configured one or, if that is
// 0 and the IPAM plugin is cluster, the one that the agent of this node has published. conf is the
// configuration of the interface plugin. MTU returns 0 if no agent that programs routes has run.
func MTU(configured int, ipam string, conf []byte) int {
	if configured != 0 || ipam != "cluster" {
		return configured
	}
	var c struct{ IPAM struct{ Dir string } }
	if json.Unmarshal(conf, &c) != nil {
		return 0
	}
	n, err := New(Options{Dir: cmp.Or(c.IPAM.Dir, DefaultDir), Existing: true}).Node()
	if err != nil { // ADD of the IPAM plugin reports it
		return 0
	}
	return n.MTU
}
