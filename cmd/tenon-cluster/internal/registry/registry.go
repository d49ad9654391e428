// Package registry makes the transactions of a cluster in etcd: each changes the store from one
// state that keeps the invariants to another, or not at all. It decides nothing by time and keeps
// no state between calls. Package agent decides when to call it.
//
// An error after a request was sent does not mean that etcd did not commit it. Every document
// therefore carries a nonce; after an error that wraps [ErrUnknown] the caller repeats the call
// with the same nonce, and the call finds what it committed, or excludes that it ever commits.
package registry

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
	ErrRefused  = errors.New("not permitted") // by the pool's rules, or because the node drains
)

// ErrRival means that another process uses the identity of the node, with a copy of its files or its
// memory.
var ErrRival = fmt.Errorf("%w, with the same identity", ErrIdentity)

// Client is the part of etcd's client that the registry needs. *clientv3.Client has it.
type Client interface {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher
}

// Options are options of a registry.
type Options struct {
	Cluster string
	// Store is the nonce of the meta document. With it, every write fails with ErrForeign after the
	// nonce has changed. Without it, a write requires only that the cluster exists.
	Store   string
	Seen    *Seen            // records and judges the answers, if not nil
	Timeout time.Duration    // of a request; 5 s if zero
	Now     func() time.Time // for the times in documents; time.Now if nil
	Nonce   func() string    // 128 random bits in hexadecimal if nil
	Proofs  Proofs           // of the node; see [Registry.Proving]
}

// Registry makes transactions, in groups by the documents that they change.
type Registry struct {
	Meta      Meta
	Questions Questions
	Nodes     Nodes
	Pools     Pools
	Blocks    Blocks
	Shared    Shared
	Quotas    Quotas

	*requests
}

// The methods of a [Registry], in groups. A group has no state.
type (
	// Meta reads and writes the identity of the store, and the doubts about it.
	Meta struct{ *requests }

	// Questions asks all nodes a question of an operator, and reads their answers.
	Questions struct{ *requests }

	// Nodes joins, renews, changes, fences and deletes nodes, and replaces their proofs.
	Nodes struct{ *requests }

	// Pools creates, changes, deletes and reads pools.
	Pools struct{ *requests }

	// Blocks claims and returns the blocks of nodes, and frees blocks that have cooled down.
	Blocks struct{ *requests }

	// Shared acquires and releases shared addresses: sticky and requested ones.
	Shared struct{ *requests }

	// Quotas draws tokens from the quotas of namespaces, and gives them back.
	Quotas struct{ *requests }
)

// requests sends requests to the store, and lets Options.Seen judge the answers. All groups of a
// registry share it.
type requests struct {
	client Client
	keys   cluster.Keys
	o      Options
}

// grouped returns a registry that sends its requests by r.
func (r *requests) grouped() *Registry {
	return &Registry{Meta: Meta{r}, Questions: Questions{r}, Nodes: Nodes{r}, Pools: Pools{r},
		Blocks: Blocks{r}, Shared: Shared{r}, Quotas: Quotas{r}, requests: r}
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

// defaultTimeout is the time limit of a request.
const defaultTimeout = 5 * time.Second

// New returns a registry.
func New(c Client, o Options) *Registry {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Nonce == nil {
		o.Nonce = nonce
	}
	r := &requests{client: c, keys: cluster.NewKeys(o.Cluster), o: o}
	return r.grouped()
}

// Bound returns a registry bound to the nonce of the present store; see Options.Store.
func (r *Registry) Bound(nonce string) *Registry {
	bound := *r.requests
	bound.o.Store = nonce
	return bound.grouped()
}

// Judged returns a registry with another Options.Seen.
func (r *Registry) Judged(seen *Seen) *Registry {
	judged := *r.requests
	judged.o.Seen = seen
	return judged.grouped()
}

// Proving returns a registry for one process of a node. Join, Rejoin and Prove write its next
// proof, and Renew compares it. ErrRival: the store has the proof of another process.
func (r *Registry) Proving(p Proofs) *Registry {
	proving := *r.requests
	proving.o.Proofs = p
	return proving.grouped()
}

func nonce() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
