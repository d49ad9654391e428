package registry

import (
	"context"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func (r *Registry) takeHolder(context.Context, Node, cluster.Holder, *coolLeases, string) error {
	panic("not written")
}

// Hold is a request for a shared address.
type Hold struct {
	cluster.Holder      // Addr may be the zero Addr for a sticky name
	Sticky         bool // the address belongs to Namespace and Name afterwards
}

// Acquire gives a shared address to an attachment: the requested one, that of the sticky name, or a
// free one. It makes a free block shared if it must. ErrInUse names the holder; ErrFull.
func (r *Registry) Acquire(ctx context.Context, n Node, p Pool, h Hold) (cluster.Holder, error) {
	panic("not written")
}

// Release frees a shared address if the holder with this nonce still has it. A shared block without
// addresses becomes free. Unless forget is set, a sticky name keeps its address.
func (r *Registry) Release(ctx context.Context, h cluster.Holder, forget bool) error {
	panic("not written")
}

// Held reads the shared addresses that a node holds.
func (r *Registry) Held(ctx context.Context, node string) ([]cluster.Holder, error) {
	panic("not written")
}

// Draw gives a node tokens of a namespace's quota, at most count; Yield gives tokens back.
func (r *Registry) Draw(ctx context.Context, n Node, p Pool, namespace string, count uint64) (cluster.Tokens, error) {
	panic("not written")
}

// Yield lowers the tokens of a node to count.
func (r *Registry) Yield(ctx context.Context, n Node, pool, namespace string, count uint64) error {
	panic("not written")
}

// Want asks the owners of a pool's blocks for an address until the session's lease ends.
func (r *Registry) Want(ctx context.Context, s Session, pool, nonce string) error {
	panic("not written")
}

// Wants reads the requests to borrow addresses of a pool: borrower and nonce.
func (r *Registry) Wants(ctx context.Context, pool string) (map[string]string, error) {
	panic("not written")
}

// Grant lends an address of an owned block to a borrower that wants one. The caller has withdrawn
// the address from its free addresses.
func (r *Registry) Grant(ctx context.Context, n Node, b Block, a netip.Addr, borrower string) (Block, error) {
	panic("not written")
}

// Repay gives a borrowed address back to its owner.
func (r *Registry) Repay(ctx context.Context, n Node, b Block, a netip.Addr) (Node, error) {
	panic("not written")
}

// Snapshot is the whole store at one revision.
type Snapshot struct {
	Revision int64
	Meta     cluster.Meta
	Pools    []Pool
	Nodes    []Node
	Blocks   []Block
	Holders  []cluster.Holder
	Stickies []cluster.Sticky
	Tokens   map[string]map[string]cluster.Tokens // pool, then namespace and node
	Size     int64                                // bytes of keys and values
}

// Snapshot reads the whole store at one revision, in pages.
func (r *Registry) Snapshot(ctx context.Context) (Snapshot, error) { panic("not written") }

// Finding is a violated invariant.
type Finding struct {
	Invariant int    `json:"invariant"` // its number in docs/cluster.md
	Text      string `json:"text"`
	Hint      string `json:"hint,omitempty"`
}

// Check returns the violated invariants of a snapshot.
func (s Snapshot) Check() []Finding { panic("not written") }

// AddAudit stores a compressed batch of audit events of a node that ends after keep.
func (r *Registry) AddAudit(ctx context.Context, day, node string, sequence uint64, events []byte, keep time.Duration) error {
	panic("not written")
}

// Audit yields the batches of a day.
func (r *Registry) Audit(ctx context.Context, day string) ([][]byte, error) { panic("not written") }
