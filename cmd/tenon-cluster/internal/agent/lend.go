package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// Only the owner of a block lends: it withdraws the address from its free addresses, durably, and
// then grants it. The withdrawn addresses in the files are therefore always a superset of the
// grants in the store, and the agent restores an address that no grant explains.

const (
	// borrowTime is the time for which a borrower waits for a grant.
	borrowTime = 5 * time.Second
	// minPoll and maxPoll limit the pauses in which it looks for one.
	minPoll, maxPoll = 20 * time.Millisecond, 500 * time.Millisecond
	// keepFree is the number of free addresses below which a node lends none.
	keepFree = 8
	// repayTime is the time for which a borrowed address must be unused before it is repaid.
	repayTime = time.Minute
	// lendDelay is the jitter per node before a node lends, so that few nodes answer a request.
	lendDelay, maxLendDelay = 10 * time.Millisecond, time.Second
)

// borrow asks the other nodes for an address because no block is free. It returns cause if the
// pool does not permit it or none lends. The caller has the turn.
func (a *Agent) borrow(ctx context.Context, pool string, cause error) error {
	p, ok := a.pool(pool)
	if !ok || !p.Borrow || p.PrefixBits > 0 {
		return cause
	}
	s, err := a.joined()
	if err != nil {
		return err
	}
	nonce := a.o.Nonce()
	if err := a.store().Want(ctx, s, pool, nonce); err != nil {
		return a.lapse(err)
	}
	granted, err := a.awaitGrant(ctx, pool, nonce)
	if err != nil || !granted {
		withdraw, cancel := context.WithTimeout(context.WithoutCancel(ctx), borrowTime)
		defer cancel()
		// A grant that comes nevertheless is repaid: it is not in the files.
		return errors.Join(cause, err, a.store().Unwant(withdraw, s.Node.Name, pool))
	}
	return nil
}

// awaitGrant waits until the node's list has a borrowed address with the nonce, and adopts it.
func (a *Agent) awaitGrant(ctx context.Context, pool, nonce string) (bool, error) {
	until, poll := time.Now().Add(borrowTime), minPoll
	for time.Now().Before(until) {
		if !sleep(ctx, poll/2+a.o.Jitter(poll)) {
			return false, ctx.Err()
		}
		poll = min(2*poll, maxPoll)
		n, blocks, err := a.store().Owned(ctx, a.o.Node.Name)
		if err != nil {
			return false, a.lapse(err)
		}
		a.setNode(n)
		for i, ref := range n.Blocks {
			if ref.Nonce == nonce && registry.Borrowed(ref) {
				a.log.Info("borrowed", "pool", pool, "address", ref.Block.Addr(), "of", blocks[i].Owner)
				return true, a.adopt(ctx, blocks[i:i+1])
			}
		}
	}
	return false, nil
}

// lends answers the requests of other nodes until ctx ends.
func (a *Agent) lends(ctx context.Context) error {
	wanted := func(pool, borrower string) {
		err := a.lend(ctx, pool, borrower)
		if errors.Is(err, errAway) || errors.Is(err, registry.ErrFenced) || ctx.Err() != nil {
			return
		}
		a.report("lend", err)
	}
	if a.attempted(ctx) != nil {
		return nil
	}
	a.store().WatchWants(ctx, wanted, func(err error) { a.report("lend", err) })
	return nil
}

// lend grants an address to a node that wants one, if this node has many free ones and no other
// node is faster.
func (a *Agent) lend(ctx context.Context, pool, borrower string) error {
	a.mu.Lock()
	nodes := len(a.view.Nodes)
	a.mu.Unlock()
	delay := a.o.Jitter(min(lendDelay*time.Duration(nodes), maxLendDelay))
	if borrower == a.o.Node.Name || !sleep(ctx, delay) {
		return nil
	}
	end, err := a.exclusive(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := a.mayAcquire(ctx, pool); err != nil {
		return nil // it drains, or it has no contact, or the pool is for other nodes
	}
	wants, err := a.store().Wants(ctx, pool)
	if _, ok := wants[borrower]; err != nil || !ok {
		return err
	}
	return a.lendLocked(ctx, pool, borrower)
}

// lendLocked withdraws an address and grants it. The caller has the turn.
func (a *Agent) lendLocked(ctx context.Context, pool, borrower string) error {
	use, err := a.usage(ctx, pool)
	if err != nil {
		return err
	}
	capacity, used := total(use)
	if capacity-min(used, capacity) <= keepFree {
		return nil
	}
	n, blocks, err := a.store().Owned(ctx, a.o.Node.Name)
	if err != nil {
		return a.lapse(err)
	}
	a.setNode(n)
	var from local.Use
	for _, u := range use {
		if u.Phase == local.Owned && free(u) > free(from) {
			from = u
		}
	}
	i := slices.IndexFunc(blocks, func(b registry.Block) bool {
		return b.Pool == pool && b.Block.Block == from.Block.Block && b.Block.Nonce == from.Nonce
	})
	if i < 0 {
		return nil
	}
	addr, err := a.withdraw(ctx, pool, from.Block.Block, borrower)
	if err != nil {
		return err
	}
	_, err = a.store().Grant(ctx, n, blocks[i], addr, borrower)
	switch {
	case err == nil:
		a.log.Info("lent", "pool", pool, "address", addr, "to", borrower)
		return nil
	case errors.Is(err, registry.ErrUnknown):
		return fmt.Errorf("lend %s: %w", addr, err) // lendUpkeep finds the outcome
	}
	err = a.restore(ctx, pool, addr)
	if err == nil { // another node was faster, or the borrower has given up
		return nil
	}
	return fmt.Errorf("restore %s: %w", addr, err)
}

// free returns the number of free addresses of a block.
func free(u local.Use) uint64 { return u.Capacity - min(u.Used, u.Capacity) }

func (a *Agent) withdraw(
	ctx context.Context, pool string, block netip.Prefix, borrower string,
) (addr netip.Addr, err error) {
	p, err := a.o.Local.Open(ctx, pool, false)
	if err != nil {
		return addr, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.Withdraw(ctx, block, borrower)
}

func (a *Agent) restore(ctx context.Context, pool string, addr netip.Addr) (err error) {
	p, err := a.o.Local.Open(ctx, pool, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.Restore(ctx, addr)
}

// lendUpkeep repays borrowed addresses that are not used, and restores lent ones that were
// repaid. The caller has the turn.
func (a *Agent) lendUpkeep(ctx context.Context) error {
	if a.mayGrow() != nil {
		return nil
	}
	names, err := a.o.Local.Pools()
	if err != nil {
		return err
	}
	for _, pool := range names {
		use, err := a.usage(ctx, pool)
		if err == nil {
			err = errors.Join(a.repayUnused(ctx, pool, use), a.regain(ctx, pool, use))
		}
		if err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	return nil
}

// repayUnused drops borrowed addresses from the files that have been unused for repayTime, and
// then repays all borrowed addresses of the node's document that are not in the files.
func (a *Agent) repayUnused(ctx context.Context, pool string, use []local.Use) error {
	kept := map[netip.Prefix]bool{}
	for _, u := range use {
		if !u.Of.IsValid() {
			continue
		}
		dropped, err := a.dropBorrowed(ctx, pool, u)
		if err != nil {
			return err
		}
		kept[u.Block.Block] = !dropped
	}
	s, err := a.joined()
	if err != nil {
		return err
	}
	for _, ref := range s.Node.Blocks {
		if ref.Pool != pool || !registry.Borrowed(ref) || kept[ref.Block] {
			continue
		}
		p, ok := a.pool(pool)
		if !ok {
			continue
		}
		of, _ := p.BlockOf(ref.Block.Addr())
		n, err := a.store().Repay(ctx, s.Node,
			registry.Block{Block: cluster.Block{Pool: pool, Block: of}}, ref.Block.Addr())
		if err != nil {
			return fmt.Errorf("repay %s: %w", ref.Block.Addr(), a.lapse(err))
		}
		a.setNode(n)
		s.Node = n
		a.log.Info("repaid", "pool", pool, "address", ref.Block.Addr())
	}
	return nil
}

// dropBorrowed removes a borrowed address from the files if it has been unused long enough. The
// address of an ended loan of an earlier epoch is lost and stays until dropLost.
func (a *Agent) dropBorrowed(
	ctx context.Context, pool string, u local.Use,
) (dropped bool, err error) {
	id := blockID{u.Block.Block, u.Nonce}
	a.mu.Lock()
	since, known := a.idle[id]
	switch {
	case u.Used > 0 || u.Phase != local.Borrowed:
		delete(a.idle, id)
	case !known:
		since = time.Now()
		a.idle[id] = since
	}
	a.mu.Unlock()
	if u.Used > 0 || u.Phase != local.Borrowed || time.Since(since) < repayTime {
		return false, nil
	}
	err = a.edit(ctx, pool, func(p *local.Pool) error {
		used, err := inUse(ctx, p)
		if err != nil || used[u.Block.Block] > 0 {
			return err
		}
		dropped = true
		p.State.Blocks = slices.DeleteFunc(p.State.Blocks, func(b local.Block) bool {
			return b.Nonce == u.Nonce && b.Block == u.Block.Block
		})
		return nil
	})
	if dropped {
		a.mu.Lock()
		delete(a.idle, id)
		a.mu.Unlock()
	}
	return dropped, err
}

// regain restores withdrawn addresses that the store does not show as lent, and the
// cooled-down addresses of fenced borrowers.
func (a *Agent) regain(ctx context.Context, pool string, use []local.Use) error {
	if !slices.ContainsFunc(use, func(u local.Use) bool { return len(u.Lent) > 0 }) {
		return nil
	}
	ungranted, err := a.ungranted(ctx, pool, use)
	if err != nil || len(ungranted) == 0 {
		return err
	}
	// A grant of an interrupted request may still commit: exclude that, and look again.
	s, err := a.joined()
	if err != nil {
		return err
	}
	n, _, err := a.store().Exclude(ctx, s.Node, "")
	if err != nil {
		return a.lapse(err)
	}
	a.setNode(n)
	if ungranted, err = a.ungranted(ctx, pool, use); err != nil {
		return err
	}
	for _, addr := range ungranted {
		if err := a.restore(ctx, pool, addr); err != nil {
			return err
		}
		a.log.Info("restored a lent address", "pool", pool, "address", addr)
	}
	return nil
}

// ungranted returns the withdrawn addresses that the store does not show as lent.
func (a *Agent) ungranted(
	ctx context.Context, pool string, use []local.Use,
) (all []netip.Addr, err error) {
	n, blocks, err := a.store().Owned(ctx, a.o.Node.Name)
	if err != nil {
		return nil, a.lapse(err)
	}
	a.setNode(n)
	for _, u := range use {
		i := slices.IndexFunc(blocks, func(b registry.Block) bool {
			return b.Pool == pool && b.Block.Block == u.Block.Block && b.Block.Nonce == u.Nonce
		})
		if i < 0 || u.Phase != local.Owned {
			continue
		}
		for addr := range u.Lent {
			grant, ok := blocks[i].Grants[addr]
			if ok && grant.Borrower == "" { // of a fenced borrower
				_, err := a.store().Regain(ctx, n, blocks[i], addr)
				if errors.Is(err, registry.ErrInUse) {
					continue
				}
				if err != nil {
					return nil, a.lapse(err)
				}
				ok = false
			}
			if !ok {
				all = append(all, addr)
			}
		}
	}
	return all, nil
}
