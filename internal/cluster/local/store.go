package local

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

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
	// ErrHold: the node had no contact with the store for longer than the pool's hold.
	ErrHold = errors.New("the node may not use its blocks: no contact with the store for too long")
	// ErrDraining: an operator drains the node.
	ErrDraining = errors.New("the node is draining")
	// ErrQuota: the namespace has used its addresses; the agent may get more.
	ErrQuota = errors.New("the node's part of the namespace's quota is used up")
	// ErrForeignAddress: a requested address is in no block of this node.
	ErrForeignAddress = errors.New("the address is in no block of this node")
)

// Clock reads the two clocks of a [Deadline].
type Clock func() (boot time.Duration, wall time.Time)

// Options select a store. Zero fields stand for the values of the running system.
type Options struct {
	Dir    string // DefaultDir
	BootID string
	Clock  Clock
	Change ipam.Change // makes the changes to reservations; see filestore.Options
	Log    *slog.Logger
}

// Store is the state of a node.
type Store struct{ o Options }

// New returns the store of a directory. It does no I/O.
func New(o Options) *Store { panic("not written") }

// Pools returns the names of the pools that have a state or reservations, sorted.
func (s *Store) Pools() ([]string, error) { panic("not written") }

// Node reads node.json. The error wraps fs.ErrNotExist if no agent has run.
func (s *Store) Node() (Node, error) { panic("not written") }

// SetNode writes node.json atomically and durably.
func (s *Store) SetNode(n Node) error { panic("not written") }

// Contact returns the time of the last contact with the store; SetContact sets it to now.
func (s *Store) Contact() (time.Time, error) { panic("not written") }

// SetContact sets the time of the last contact to now.
func (s *Store) SetContact() error { panic("not written") }

// Open locks a pool and reads its state. With peek it does not wait for the lock and the pool cannot
// be changed. A pool without state has the zero State; see ErrNoPool.
func (s *Store) Open(ctx context.Context, pool string, peek bool) (*Pool, error) {
	panic("not written")
}

// Pool is a locked pool of this node.
type Pool struct {
	State State // change it, then call Save
}

// Save writes the state atomically and durably.
func (p *Pool) Save() error { panic("not written") }

// Close unlocks the pool. Closing again does nothing.
func (p *Pool) Close() error { panic("not written") }

// Request asks for an address, or a prefix.
type Request struct {
	Owner     ipam.Owner // with the network
	Addr      netip.Addr // requested, or the zero Addr
	Namespace string     // of the pod, for quotas
	Pod       string     // for the audit
}

// Allocation is the address for an interface.
type Allocation struct {
	Addr    netip.Prefix // with the length of the block, or of the prefix
	Gateway netip.Addr
}

// Allocate reserves an address of the node's blocks. It checks state, boot and hold before and
// after. The error wraps one of the errors of this package or of package ipam.
func (p *Pool) Allocate(ctx context.Context, q Request) (Allocation, error) { panic("not written") }

// Put records that an attachment holds a shared address; the agent calls it.
func (p *Pool) Put(ctx context.Context, a netip.Addr, q Request) (Allocation, error) {
	panic("not written")
}

// Release frees the addresses of an attachment. For a shared address it first writes a note for the
// agent; noted reports that.
func (p *Pool) Release(ctx context.Context, o ipam.Owner) (noted bool, err error) {
	panic("not written")
}

// Collect frees the addresses of a network's attachments that are not in keep, like Release.
func (p *Pool) Collect(ctx context.Context, network string, keep []ipam.Owner) (freed []ipam.Lease, noted bool, err error) {
	panic("not written")
}

// Leases returns the reservations, sorted by address.
func (p *Pool) Leases(ctx context.Context) ([]ipam.Lease, error) { panic("not written") }

// Withdraw reserves a free address of an owned block for a borrower, and Restore ends that.
func (p *Pool) Withdraw(ctx context.Context, block netip.Prefix, borrower string) (netip.Addr, error) {
	panic("not written")
}

// Restore makes a withdrawn address free again.
func (p *Pool) Restore(ctx context.Context, a netip.Addr) error { panic("not written") }

// Use is the use of a block.
type Use struct {
	Block
	Capacity uint64 // addresses, or prefixes, that can be allocated
	Used     uint64 // reserved ones, also in blocks that are lost or returning
}

// Usage returns the use of every block, in the order of the state, and the shared addresses.
func (p *Pool) Usage(ctx context.Context) (blocks []Use, shared []ipam.Lease, err error) {
	panic("not written")
}

// Note is a shared address that the plugin has released and the store still shows.
type Note struct {
	Pool string     `json:"pool"`
	Addr netip.Addr `json:"addr"`
}

// Notes reads the notes; Done removes one.
func (s *Store) Notes() ([]Note, error) { panic("not written") }

// Done removes a note.
func (s *Store) Done(n Note) error { panic("not written") }
