package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// files are the states of the pools in the node's files, from which the plugin allocates. The
// caller of a method that changes them has the turn; forbid needs none.
type files struct {
	o        *Options
	identity *identity
	trust    *trust
	session  *session
	view     *view
	hold     *hold
}

// edit changes the state of a pool under its lock and writes it if it has changed. No request to
// the store is made while the lock is held.
func (f *files) edit(ctx context.Context, name string, change func(*local.Pool) error) (err error) {
	p, err := f.o.Local.Open(ctx, name, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	before := p.State
	before.Blocks = slices.Clone(p.State.Blocks)
	before.Tokens = maps.Clone(p.State.Tokens)
	if err := change(p); err != nil {
		return err
	}
	if p.State.Pool.Name == "" || reflect.DeepEqual(before, p.State) {
		return nil // a pool without document has nothing but reservations
	}
	return p.Save()
}

// fill sets the parts of a pool's state that do not depend on its blocks. It leaves the pool's
// document as it is if the pool no longer exists.
func (f *files) fill(st *local.State, name string) {
	p, ok := f.view.pool(name)
	own := f.identity.node()
	st.Schema, st.Node, st.Store = cluster.Schema, f.o.Node.Name, own.Store
	st.Place, st.Rival = own.Place, false
	if ok {
		st.Pool = p.Pool
	}
	if s, err := f.session.joined(); err == nil {
		st.Epoch = s.Node.Epoch
		st.Draining = s.Node.State == cluster.NodeDraining
	}
	st.Hold = f.hold.deadline(st.Pool, st.Hold)
}

// usage reads the use of a pool's blocks.
func (f *files) usage(ctx context.Context, name string) (use []local.Use, err error) {
	p, err := f.o.Local.Open(ctx, name, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	use, _, err = p.Usage(ctx)
	return use, err
}

// sync writes the changed parts of a pool: its document, the deadline of hold, the state of the
// node.
func (f *files) sync(ctx context.Context, name string) error {
	return f.edit(ctx, name, func(p *local.Pool) error {
		if f.drifted(name, p) {
			f.o.Log.Error("the files of a pool do not agree with the store; confirming the blocks",
				"pool", name, "cause", p.Err())
			f.session.lose() // the next renewal joins and confirms
			return nil
		}
		if _, ok := f.view.pool(name); !ok && len(p.State.Blocks) == 0 {
			return p.Remove() // an operator has deleted the pool
		}
		f.fill(&p.State, name)
		if len(p.State.Blocks) == 0 { // nothing to confirm
			p.State.Boot = f.o.BootID
		}
		return f.dropLost(ctx, p)
	})
}

// blockID identifies a claimed block. All blocks of one claim have the same nonce.
type blockID struct {
	block netip.Prefix
	nonce string
}

// drifted reports whether the blocks in the files differ from the node's document, for
// instance because a file was damaged or removed. A restored store is an exception that stays.
// While the node waits for others, it adopts no blocks, and looks only for missing ones: they show
// that the store was restored.
func (f *files) drifted(name string, p *local.Pool) bool {
	s, err := f.session.joined()
	if err != nil || f.trust.distrusts() {
		return false
	}
	unknown := map[blockID]bool{}
	for _, b := range s.Node.Blocks {
		if b.Pool == name {
			unknown[blockID{b.Block, b.Nonce}] = true
		}
	}
	for _, b := range p.State.Blocks {
		if b.Phase == local.Lost {
			continue
		}
		id := blockID{b.Block, b.Nonce}
		if !unknown[id] {
			return true
		}
		delete(unknown, id)
	}
	return len(unknown) > 0 && f.trust.settling() <= 0
}

// dropLost removes lost blocks without reserved addresses.
func (f *files) dropLost(ctx context.Context, p *local.Pool) error {
	lost := func(b local.Block) bool { return b.Phase == local.Lost }
	if !slices.ContainsFunc(p.State.Blocks, lost) {
		return nil
	}
	used, err := inUse(ctx, p)
	if err != nil {
		return err
	}
	p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(b local.Block) bool {
		return lost(b) && used[b.Block] == 0
	})
	return nil
}
