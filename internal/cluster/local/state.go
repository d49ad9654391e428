package local

import (
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// DefaultDir is the directory of a node's state.
const DefaultDir = "/var/lib/cni/cluster"

// DefaultSocket is the socket of the agent.
const DefaultSocket = "/run/tenon/cluster.sock"

// Phase is the phase of a block on its node.
type Phase string

// The phases of a block.
const (
	Owned     Phase = "owned"     // addresses are allocated from it
	Borrowed  Phase = "borrowed"  // a single address of another node's block; allocated, too
	Returning Phase = "returning" // not used any more; the agent gives it back
	Lost      Phase = "lost"      // the node was fenced; its addresses drain and are not replaced
)

// Block is a block of this node.
type Block struct {
	Block      netip.Prefix `json:"block"`       // or a single borrowed address
	Of         netip.Prefix `json:"of,omitzero"` // the block of a borrowed address
	Generation int64        `json:"generation"`
	Epoch      uint64       `json:"epoch"`
	Nonce      string       `json:"nonce"`
	Phase      Phase        `json:"phase"`
	Since      time.Time    `json:"since"`
}

// Deadline is an instant that two clocks decide: it has passed when either says so. A paused or
// restored virtual machine, or a changed clock, therefore never extends it.
type Deadline struct {
	Boot time.Duration `json:"boot"` // CLOCK_BOOTTIME, in nanoseconds
	Wall time.Time     `json:"wall"`
}

// State is what a node knows of one pool: all that the plugin needs to allocate.
type State struct {
	Schema int          `json:"schema"`
	Pool   cluster.Pool `json:"pool"`
	Node   string       `json:"node"`
	Epoch  uint64       `json:"epoch"`
	Store  string       `json:"store"` // nonce of [cluster.Meta]
	// Boot is the ID of the boot in which the agent confirmed the blocks with a linearizable read.
	// In another boot, ADD waits for the agent.
	Boot string `json:"boot"`
	// Hold, if set, is the time after which the blocks must not be used.
	Hold   *Deadline         `json:"hold,omitempty"`
	Blocks []Block           `json:"blocks"`
	Tokens map[string]uint64 `json:"tokens,omitempty"` // quota per namespace that this node may use
	// Draining forbids allocations: an operator drains the node.
	Draining bool `json:"draining,omitempty"`
}

// Node is the identity of this node.
type Node struct {
	Schema   int    `json:"schema"`
	Cluster  string `json:"cluster"`
	Name     string `json:"name"`
	Identity string `json:"identity"`
	Epoch    uint64 `json:"epoch"`
	Store    string `json:"store"`
	MTU      int    `json:"mtu,omitempty"` // for container interfaces, from the routes; 0 if not known
}
