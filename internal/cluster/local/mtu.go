package local

import (
	"cmp"
	"encoding/json"
)

// MTUOf returns the MTU, in bytes, that the agent of this node has published for the containers of
// a network. conf is the configuration of an interface plugin. MTUOf returns 0 if the IPAM plugin
// is not cluster, or if no agent that programs routes has run.
func MTUOf(conf []byte) int {
	var c struct {
		IPAM struct{ Type, Dir string }
	}
	if json.Unmarshal(conf, &c) != nil || c.IPAM.Type != "cluster" {
		return 0
	}
	n, err := New(Options{Dir: cmp.Or(c.IPAM.Dir, DefaultDir), Existing: true}).Node()
	if err != nil { // ADD of the IPAM plugin reports it
		return 0
	}
	return n.MTU
}
