// Package registry makes the transactions of a cluster in etcd: each changes the store from one
// state that keeps the invariants to another, or not at all. It decides nothing by time and keeps
// no state between calls. Package agent decides when to call it.
//
// An error after a request was sent does not mean that etcd did not commit it. Every document
// therefore carries a nonce; after an error that wraps [ErrUnknown] the caller repeats the call with
// the same nonce, and the call finds what it committed, or excludes that it ever commits.
package registry

import (
	"context"
	"errors"
	"net/netip"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Errors of this package. Use errors.Is.
var (
	ErrUnknown  = errors.New("the outcome is not known")
	ErrConflict = errors.New("another node was faster")
	ErrIdentity = errors.New("another host has joined under this name")
	ErrFenced   = errors.New("the node is fenced")
	ErrSuspect  = errors.New("the node is suspect")
	ErrLease    = errors.New("the lease has ended")
	ErrFull     = errors.New("no block is free")
	ErrNotFound = errors.New("not found")
	ErrForeign  = errors.New("the store belongs to another cluster")
	ErrQuota    = errors.New("the quota of the namespace is used up")
	ErrInUse    = errors.New("in use")
)

// Client is the part of etcd's client that the registry needs. *clientv3.Client has it.
type Client interface {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher
}

// Options are options of a registry.
type Options struct {
	Cluster string
	Timeout time.Duration    // of a request; 5 s if zero
	Now     func() time.Time // for the times in documents; time.Now if nil
	Nonce   func() string    // 128 random bits in hexadecimal if nil
}

// Registry makes transactions.
type Registry struct {
	client Client
	keys   cluster.Keys
	o      Options
}

// Pool, Node and Block are documents with the revisions that transactions compare.
type (
	// Pool is a pool with its revision.
	Pool struct {
		cluster.Pool
		Revision int64 // mod revision
	}
	// Node is a node with its revision.
	Node struct {
		cluster.Node
		Revision int64 // mod revision
		Live     bool  // its leased key exists
	}
	// Block is a block with its revisions.
	Block struct {
		cluster.Block
		Generation int64 // create revision
		Revision   int64 // mod revision
		Cool       bool  // its cool key exists
	}
)

// Session is a joined node with its lease.
type Session struct {
	Node  Node
	Lease clientv3.LeaseID
}

// New returns a registry.
func New(c Client, o Options) *Registry { panic("not written") }

// Init creates the cluster and returns its meta document; it returns the present one if it exists.
func (r *Registry) Init(ctx context.Context) (cluster.Meta, error) { panic("not written") }

// Meta reads the meta document with a linearizable read. ErrNotFound: the cluster has no Init.
func (r *Registry) Meta(ctx context.Context) (cluster.Meta, error) { panic("not written") }

// PutPool creates a pool, or changes one without changing its range or block size.
func (r *Registry) PutPool(ctx context.Context, p cluster.Pool) (Pool, error) { panic("not written") }

// DeletePool deletes a pool that has no block. ErrInUse otherwise.
func (r *Registry) DeletePool(ctx context.Context, name string) error { panic("not written") }

// Pools reads all pools, sorted by name.
func (r *Registry) Pools(ctx context.Context) ([]Pool, error) { panic("not written") }

// Join makes a node known, or changes its addresses: epoch 1 for a new node, the present one
// otherwise. A suspect node of the same identity and epoch becomes active. ErrIdentity, ErrFenced.
// The lease lasts ttl, 30 s if zero.
func (r *Registry) Join(ctx context.Context, n cluster.Node, ttl time.Duration) (Session, error) {
	panic("not written")
}

// Rejoin gives a fenced node with an empty list the next epoch. ErrInUse: it still has blocks.
func (r *Registry) Rejoin(ctx context.Context, n cluster.Node, ttl time.Duration) (Session, error) {
	panic("not written")
}

// Renew proves that the node is unchanged and its lease alive, and keeps the lease alive.
// ErrConflict: the node's document has changed, read it again; ErrLease, ErrSuspect, ErrFenced.
func (r *Registry) Renew(ctx context.Context, s Session) error { panic("not written") }

// Node reads a node. ErrNotFound.
func (r *Registry) Node(ctx context.Context, name string) (Node, error) { panic("not written") }

// Update changes the document of a joined node: addresses, labels, MTU, or the state between active
// and draining.
func (r *Registry) Update(ctx context.Context, n Node, change func(*cluster.Node)) (Node, error) {
	panic("not written")
}

// Free returns at most count free blocks for a node, in the order in which it should try them. It
// frees cooled-down blocks if it needs them.
func (r *Registry) Free(ctx context.Context, p Pool, node string, count int) ([]netip.Prefix, error) {
	panic("not written")
}

// Claim makes the node the owner of free blocks, at most 40. With the nonce of an earlier call whose
// outcome is unknown it returns the blocks that the call claimed.
func (r *Registry) Claim(ctx context.Context, n Node, p Pool, blocks []netip.Prefix, nonce string) (Node, []Block, error) {
	panic("not written")
}

// Exclude makes sure that a transaction with this nonce never commits any more: it changes the
// node's document. It returns the blocks that the transaction did claim.
func (r *Registry) Exclude(ctx context.Context, n Node, nonce string) (Node, []Block, error) {
	panic("not written")
}

// Owned reads the node and all blocks in its list with one linearizable transaction.
func (r *Registry) Owned(ctx context.Context, name string) (Node, []Block, error) {
	panic("not written")
}

// Return gives a block back: it cools down. It succeeds if the block has left the node already.
func (r *Registry) Return(ctx context.Context, n Node, b Block, reason string) (Node, error) {
	panic("not written")
}

// Expire frees at most count blocks of a pool that have cooled down.
func (r *Registry) Expire(ctx context.Context, pool string, count int) (int, error) {
	panic("not written")
}

// Suspect marks a node whose leased key is gone. It returns ErrConflict if the key exists.
func (r *Registry) Suspect(ctx context.Context, n Node) (Node, error) { panic("not written") }

// Fence records the evidence that a suspect node uses no address any more.
func (r *Registry) Fence(ctx context.Context, n Node, evidence, author string) (Node, error) {
	panic("not written")
}

// Reclaim takes at most 40 blocks, and all shared addresses and grants, of a fenced node. done
// reports that nothing is left.
func (r *Registry) Reclaim(ctx context.Context, n Node, reason string) (rest Node, done bool, err error) {
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

// View is what a node needs to know of the others.
type View struct {
	Pools   []Pool
	Nodes   []Node           // with their block lists
	Holders []cluster.Holder // shared addresses need routes of their own
}

// Watch calls changed with the present view and after each batch of changes, until ctx ends. It
// lists and compares again after a compaction, a lost watch, and every resync interval, so that no
// deletion is lost. It returns only when ctx has ended.
func (r *Registry) Watch(ctx context.Context, resync time.Duration, changed func(View, error)) {
	panic("not written")
}

// AddAudit stores a compressed batch of audit events of a node that ends after keep.
func (r *Registry) AddAudit(ctx context.Context, day, node string, sequence uint64, events []byte, keep time.Duration) error {
	panic("not written")
}

// Audit yields the batches of a day.
func (r *Registry) Audit(ctx context.Context, day string) ([][]byte, error) { panic("not written") }
