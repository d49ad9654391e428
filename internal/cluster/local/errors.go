package local

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// Errors of this package. Use errors.Is.
var (
	// ErrNoPool: the agent has written no state for the pool.
	ErrNoPool = errors.New("this node does not know the pool")
	// ErrFull: no block has a free address; the agent may claim another block.
	ErrFull = errors.New("no free address in the blocks of this node")
	// ErrUnconfirmed: the node has restarted and the agent has not confirmed the blocks since.
	ErrUnconfirmed = errors.New("the blocks are not confirmed since the node started")
	// ErrCopied: the directory is a copy, was moved to another file system, or was emptied.
	ErrCopied = errors.New("the directory is not the one in which this node keeps its reservations")
	// ErrRival: another process used the identity of this node, with a copy of its files or memory.
	ErrRival = errors.New("another process uses the identity of this node")
	// ErrHold: the node had no contact with the store for longer than the pool's hold.
	ErrHold = errors.New("the node may not use its blocks: no contact with the store for too long")
	// ErrDraining: an operator drains the node.
	ErrDraining = errors.New("the node is draining")
	// ErrLost: the node was fenced and owns no other block.
	ErrLost = errors.New("the node was fenced and has lost its blocks")
	// ErrQuota: the namespace has used its addresses; the agent may get more.
	ErrQuota = errors.New("the node's part of the namespace's quota is used up")
	// ErrNamespace: the pool is not for the namespace of the pod.
	ErrNamespace = errors.New("the pool is not open to the namespace")
	// ErrForeignAddress: a requested address is in no block of this node.
	ErrForeignAddress = errors.New("the address is in no block of this node")
	// ErrNotAllocatable: a requested address is excluded, not in the pool, or has another role.
	ErrNotAllocatable = errors.New("the address cannot be allocated")
)

// FullError reports that the blocks of this node have no free address. It wraps [ErrFull].
type FullError struct {
	Pool           string
	Used, Capacity uint64       // of the blocks from which addresses are allocated
	Blocks         []string     // their nonces, for the agent
	Oldest         []ipam.Lease // the oldest reservations, oldest first
}

func (e *FullError) Error() string {
	return fmt.Sprintf("pool %s: %v: %d of %d are in use", e.Pool, ErrFull, e.Used, e.Capacity)
}

// Unwrap returns ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }

// Details returns the oldest reservations, or "".
func (e *FullError) Details() string {
	if len(e.Oldest) == 0 {
		return ""
	}
	var oldest []string
	for _, l := range e.Oldest {
		oldest = append(oldest, l.String())
	}
	return "oldest: " + strings.Join(oldest, "; ")
}
