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
	Returning Phase = "returning" // not used any more; the agent gives it back
	Lost      Phase = "lost"      // the node was fenced; its addresses drain and are not replaced
)

// Block is a block of this node.
type Block struct {
	Block      netip.Prefix `json:"block"`
	Generation int64        `json:"generation"`
	Epoch      uint64       `json:"epoch"`
	Nonce      string       `json:"nonce"`
	Phase      Phase        `json:"phase"`
	Since      time.Time    `json:"since"`
}

// usable reports whether addresses of the block may be allocated.
func (b *Block) usable() bool { return b.Phase == Owned }

// Deadline is an instant that two clocks decide: it has passed when either says so. A paused or
// restored virtual machine, or a changed clock, therefore never extends it.
type Deadline struct {
	Boot time.Duration `json:"boot"` // CLOCK_BOOTTIME, in nanoseconds
	Wall time.Time     `json:"wall"`
}

// Passed reports whether the instant has passed by either clock.
func (d Deadline) Passed(now Clock) bool {
	boot, wall := now()
	return boot >= d.Boot || !wall.Before(d.Wall)
}

// Left returns the time until the instant by the clock that reaches it first, or 0.
func (d Deadline) Left(now Clock) time.Duration {
	boot, wall := now()
	return max(0, min(d.Boot-boot, d.Wall.Sub(wall)))
}

// NewDeadline returns the instant a duration after a reading of both clocks. For hold, the reading
// must precede the request to the store.
func NewDeadline(boot time.Duration, wall time.Time, d time.Duration) Deadline {
	return Deadline{boot + d, wall.Round(0).Add(d)}
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
	// Place is the [Store.Place] of the directory in which the blocks may be used.
	Place string `json:"place,omitempty"`
	// Rival forbids allocations: another process used the identity of this node.
	Rival bool `json:"rival,omitempty"`
	// Hold, if set, is the time after which the blocks must not be used.
	Hold   *Deadline         `json:"hold,omitempty"`
	Blocks []Block           `json:"blocks"`
	Tokens map[string]uint64 `json:"tokens,omitempty"` // quota per namespace that this node may use
	// Draining forbids allocations: an operator drains the node.
	Draining bool `json:"draining,omitempty"`
}

// BlockOf returns the block of this node that contains an address, or nil.
func (s *State) BlockOf(a netip.Addr) *Block {
	for i := range s.Blocks {
		if s.Blocks[i].Block.Contains(a) {
			return &s.Blocks[i]
		}
	}
	return nil
}

// has reports whether a block is in a phase.
func (s *State) has(p Phase) bool {
	for i := range s.Blocks {
		if s.Blocks[i].Phase == p {
			return true
		}
	}
	return false
}

// Node is the identity of this node.
type Node struct {
	Schema   int    `json:"schema"`
	Cluster  string `json:"cluster"`
	Name     string `json:"name"`
	Identity string `json:"identity"`
	Epoch    uint64 `json:"epoch"`
	Store    string `json:"store"`
	Revision int64  `json:"revision,omitempty"` // the newest one of the node's document
	// Place is the [Store.Place] of the directory in which the node keeps its reservations.
	Place string `json:"place,omitempty"`
	// Machine is the machine on which the files were written, "" if not known.
	Machine string `json:"machine,omitempty"`
	// Proof is the proof of this node that its agent has last written to the store, Turn its number,
	// and Next the one that replaces it, or has replaced it.
	Proof string `json:"proof,omitempty"`
	Turn  uint64 `json:"turn,omitempty"`
	Next  string `json:"nextProof,omitempty"`
	// Seen is the newest state of the store that the node has seen.
	Seen cluster.Mark `json:"seen,omitzero"`
	// Restored is why the node does not trust the store. An operator's confirmation empties it.
	Restored string `json:"restored,omitempty"`
	MTU      int    `json:"mtu,omitempty"` // for container interfaces; 0 if not known
}
