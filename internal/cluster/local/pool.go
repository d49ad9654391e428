package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Pool is a locked pool of this node. It is for one goroutine.
type Pool struct {
	State State // change it, then call Save

	name   string
	store  *Store
	files  *filestore.Store
	unread error // why State is the zero State, or nil
	noted  bool  // a note has been written

	readOnly bool // the pool may lack the lock
}

// Open locks a pool and reads its state. With peek it does not wait for the lock, creates nothing,
// and the pool cannot be changed. A pool without a readable state has the zero State; see
// [Pool.Err]. The error is about the lock or the directory.
func (s *Store) Open(ctx context.Context, pool string, peek bool) (*Pool, error) {
	if err := cluster.ValidateName(pool); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	boot, err := s.boot()
	if err != nil {
		return nil, err
	}
	p := &Pool{name: pool, store: s, readOnly: peek || s.o.Existing}
	p.files, err = filestore.Open(ctx, filestore.Options{
		Dir: s.path(addressesDir), Network: pool, BootID: boot,
		Create: !peek && !s.o.Existing, Peek: peek, Change: s.o.Change, Log: s.o.Log, Forget: p.forget,
	})
	if err != nil {
		return nil, err
	}
	p.State, p.unread = s.readState(pool)
	return p, nil
}

func (s *Store) readState(pool string) (State, error) {
	path := s.statePath(pool)
	b, err := statefile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, fmt.Errorf("pool %s: %w", pool, ErrNoPool)
	}
	if err != nil {
		return State{}, err
	}
	st, err := decode[State](path, b)
	if err != nil {
		return State{}, err
	}
	if err = st.validate(); err == nil && st.Pool.Name != pool {
		err = fmt.Errorf("it is the state of pool %q", st.Pool.Name)
	}
	if err != nil {
		return State{}, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	return st, nil
}

// validate checks what the arithmetic of the pool relies on.
func (s *State) validate() error {
	pool := s.Pool
	if err := pool.Canonicalize(); err != nil {
		return err
	}
	for i := range s.Blocks {
		if b := s.Blocks[i].Block; !pool.IsBlock(b) {
			return fmt.Errorf("%s is not a block of pool %s", b, pool.Name)
		}
	}
	return nil
}

// Name returns the name of the pool.
func (p *Pool) Name() string { return p.name }

// Err returns why the state could not be read, or nil. The error wraps [ErrNoPool], [ErrDamaged] or
// [ErrSchema], or is about the file. Reservations can be released nevertheless.
func (p *Pool) Err() error { return p.unread }

// Save writes the state atomically and durably. It refuses to replace a state of a newer schema. It
// also refuses a pool that was opened with peek or by a store with Options.Existing, because such a
// pool may lack the lock.
func (p *Pool) Save() error {
	switch {
	case p.readOnly:
		return fmt.Errorf("pool %s was opened for reading", p.name)
	case errors.Is(p.unread, ErrSchema):
		return p.unread
	}
	p.State.Schema = cluster.Schema
	if p.State.Pool.Name != p.name {
		return fmt.Errorf("the state of pool %s names pool %q", p.name, p.State.Pool.Name)
	}
	if err := p.State.validate(); err != nil {
		return err
	}
	if err := save(p.store.statePath(p.name), p.State); err != nil {
		return err
	}
	p.unread = nil
	return nil
}

// Remove deletes the state of the pool, for a pool that no longer exists. The reservations stay.
func (p *Pool) Remove() error {
	p.State, p.unread = State{}, fmt.Errorf("pool %s: %w", p.name, ErrNoPool)
	return remove(p.store.statePath(p.name))
}

// Close unlocks the pool. Closing again does nothing.
func (p *Pool) Close() error { return p.files.Close() }

// Abandon unlocks the pool like the end of the process, for a deferred call in case of a panic. It
// does nothing after Close.
func (p *Pool) Abandon() error { return p.files.Abandon() }

// Usable reports whether addresses may be allocated from the state now, and explains why not. The
// error is or wraps ErrNoPool, ErrUnconfirmed, ErrCopied, ErrRival, ErrLost, ErrDraining or ErrHold.
func (s *Store) Usable(st *State) error {
	boot, err := s.boot()
	switch {
	case err != nil:
		return err
	case st.Schema == 0:
		return ErrNoPool
	case st.has(Lost) && !st.has(Owned):
		return fmt.Errorf("pool %s: %w", st.Pool.Name, ErrLost)
	case st.Rival:
		return fmt.Errorf("pool %s: %w", st.Pool.Name, ErrRival)
	case st.Boot != boot, st.Pool.Hold > 0 && st.Hold == nil:
		return fmt.Errorf("pool %s: %w", st.Pool.Name, ErrUnconfirmed)
	case st.Draining:
		return fmt.Errorf("pool %s: %w", st.Pool.Name, ErrDraining)
	case st.Hold != nil && st.Hold.Passed(s.o.Clock):
		return fmt.Errorf("pool %s: %w", st.Pool.Name, ErrHold)
	}
	return s.CheckPlace(st.Place)
}

func (p *Pool) usable() error {
	if p.unread != nil {
		return p.unread
	}
	return p.store.Usable(&p.State)
}

// Leases returns the reservations of this boot, sorted by address.
func (p *Pool) Leases(ctx context.Context) ([]ipam.Lease, error) {
	leases, err := p.files.Leases(ctx)
	return slices.DeleteFunc(leases, func(l ipam.Lease) bool {
		return l.Boot == ipam.BootEarlier || l.Owner == ipam.Owner{}
	}), err
}

// Held returns the reservations of an attachment, sorted by address.
func (p *Pool) Held(ctx context.Context, o ipam.Owner) ([]ipam.Lease, error) {
	return p.files.Held(ctx, o)
}

// Use is the use of a block.
type Use struct {
	Block
	Capacity uint64 // addresses, or prefixes, that can be allocated
	Used     uint64 // reserved ones, also in blocks that are lost or returning
}

// Usage returns the use of every block, in the order of the state, and the reservations outside the
// blocks, which are the shared addresses.
func (p *Pool) Usage(ctx context.Context) (blocks []Use, shared []ipam.Lease, err error) {
	for i := range p.State.Blocks {
		b := p.State.Blocks[i]
		blocks = append(blocks, Use{Block: b, Capacity: p.State.Pool.Units(b.Block)})
	}
	blockOf := func(a netip.Addr) int {
		return slices.IndexFunc(blocks, func(u Use) bool { return u.Block.Block.Contains(a) })
	}
	leases, err := p.files.Leases(ctx)
	if err != nil {
		return nil, nil, err
	}
	unused := map[netip.Addr]bool{}
	for _, l := range leases {
		unused[l.Addr] = l.Boot == ipam.BootEarlier
		if !unused[l.Addr] && l.Owner != (ipam.Owner{}) && blockOf(l.Addr) < 0 {
			shared = append(shared, l)
		}
	}
	// An address with a file that cannot be read is no lease, but it may have a holder.
	reserved, err := p.files.Addrs()
	for _, a := range reserved {
		if at := blockOf(a); at >= 0 && !unused[a] {
			blocks[at].Used++
		}
	}
	return blocks, shared, err
}

// Used returns the number of addresses of each namespace.
func (p *Pool) Used(ctx context.Context) (map[string]uint64, error) {
	leases, err := p.Leases(ctx)
	used := map[string]uint64{}
	for _, l := range leases {
		used[l.Owner.Namespace]++
	}
	return used, err
}
