package agentcall

import (
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Verb is what a request asks for.
type Verb string

// The verbs.
const (
	// Grow asks for a block of the pool. When the agent has replied, the blocks are in the state of
	// the pool. Requests that wait at the same time share one claim.
	Grow Verb = "grow"
	// Acquire asks for a shared address: the sticky one of a name, or a requested one. When the
	// agent has replied, the reservation is in the node's files.
	Acquire Verb = "acquire"
	// Draw asks for tokens of a namespace's quota.
	Draw Verb = "draw"
	// Released reports that package local has notes for the agent.
	Released Verb = "released"
	// Report asks for the status.
	Report Verb = "report"
)

// Request is a request to the agent.
type Request struct {
	Verb      Verb       `json:"verb"`
	Pool      string     `json:"pool,omitempty"`
	Network   string     `json:"network,omitempty"`
	Container string     `json:"container,omitempty"`
	IfName    string     `json:"ifname,omitempty"`
	Namespace string     `json:"namespace,omitempty"` // of the pod
	Name      string     `json:"name,omitempty"`      // of the pod, if its address is sticky
	Addr      netip.Addr `json:"addr,omitzero"`       // requested, or the zero Addr
	Have      []string   `json:"have,omitempty"`      // Grow: nonces of the blocks that are full
	Deadline  time.Time  `json:"deadline,omitzero"`
}

// Reply is the agent's answer.
type Reply struct {
	Error   *cni.Error   `json:"error,omitempty"`
	Address netip.Prefix `json:"address,omitzero"` // Acquire: with the prefix length for the interface
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Status  *Status      `json:"status,omitempty"`
}

// Status describes the agent.
type Status struct {
	Cluster  string       `json:"cluster"`
	Node     string       `json:"node"`
	State    string       `json:"state"` // of the node: see package cluster
	Epoch    uint64       `json:"epoch"`
	Mode     string       `json:"mode"` // of the routes
	MTU      int          `json:"mtu,omitempty"`
	Peers    int          `json:"peers"`
	Contact  time.Time    `json:"contact,omitzero"` // the last answer of the store
	Settled  time.Time    `json:"settled,omitzero"` // until then the agent claims no blocks
	Problems []string     `json:"problems,omitempty"`
	Pools    []PoolStatus `json:"pools"`
}

// PoolStatus describes a pool on this node.
type PoolStatus struct {
	Pool     string    `json:"pool"`
	Blocks   int       `json:"blocks"`
	Capacity uint64    `json:"capacity"`
	Used     uint64    `json:"used"`
	Hold     time.Time `json:"hold,omitzero"` // the end of hold
	// Exhausted says why the node gets no further block at present, or is empty.
	Exhausted string `json:"exhausted,omitempty"`
}
