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
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// A shared address has a key in the store and a reservation in the node's files. The intent
// exists from before the transaction until the reservation is written. The agent releases the
// addresses that the store shows and neither an intent nor a reservation explains, and the
// addresses that notes name.

// intentAcquire is the kind of the intents of acquire.
const intentAcquire = "acquire"

// reconcileTime is the interval at which the agent compares its shared addresses with the store.
const reconcileTime = 15 * time.Minute

// commons acquires and releases the shared addresses and the tokens of quotas for this node.
type commons struct {
	o        *Options
	trust    *trust
	session  *session
	view     *view
	hold     *hold
	files    *files
	intents  *intents
	claims   *claims // only for mayClaim
	problems *problems
	turn     turn
	noted    chan struct{} // the plugin has written notes

	// The holder of the turn uses the following fields.
	reconciled time.Time         // the last comparison with the store in this session
	drawn      map[string]uint64 // tokens that were unused at the last renewal, by POOL/NAMESPACE
}

// renew begins another session: the shared addresses must be compared with the store again.
func (c *commons) renew() { c.reconciled = time.Time{} }

// acquire makes the transaction and then the reservation. After an error neither stays.
func (c *commons) acquire(
	ctx context.Context, q *agentcall.Request,
) (got local.Allocation, err error) {
	if err := c.trust.settled(ctx); err != nil {
		return got, err
	}
	end, err := c.turn.take(ctx)
	if err != nil {
		return got, err
	}
	defer end()
	p, err := c.mayAcquire(ctx, q.Pool)
	if err != nil {
		return got, err
	}
	if err := c.settleShared(ctx); err != nil {
		return got, err
	}
	if err := c.permit(ctx, q); err != nil {
		return got, err
	}
	in := intent{Kind: intentAcquire, Nonce: c.o.Nonce(), Pool: q.Pool, Since: c.o.now().wall}
	if err := c.intents.write(in); err != nil {
		return got, err
	}
	h, err := c.acquireStored(ctx, p, q, in.Nonce)
	if errors.Is(err, registry.ErrUnknown) || err != nil && ctx.Err() != nil {
		poke(c.noted)
		return got, err // the intent stays until the outcome is known
	}
	if err == nil {
		unit := local.Block{Block: unitOf(p.Pool, h.Addr)}
		if err = errors.Join(c.trust.mayGrow(), c.trust.keepSeen()); err == nil {
			err = c.hold.guardNew(ctx, q.Pool, []local.Block{unit})
		}
		if err == nil {
			got, err = c.put(ctx, q, h.Addr)
		}
		if err != nil {
			err = errors.Join(err, c.undoAcquire(ctx, in))
			return got, err
		}
		c.o.Log.Info("acquired", "pool", q.Pool, "address", h.Addr, "container", q.Container)
	}
	return got, errors.Join(err, c.intents.remove(in))
}

// mayAcquire returns the pool if the node may acquire shared addresses of it.
func (c *commons) mayAcquire(ctx context.Context, name string) (registry.Pool, error) {
	p, err := c.claims.mayClaim(ctx, name)
	if errors.Is(err, errMaxBlocks) { // shared blocks belong to no node
		err = nil
	}
	return p, err
}

// acquireStored makes the transaction, and repeats it with the same nonce while its outcome is
// unknown.
func (c *commons) acquireStored(
	ctx context.Context, p registry.Pool, q *agentcall.Request, nonce string,
) (h cluster.Holder, err error) {
	s, err := c.session.joined()
	if err != nil {
		return h, err
	}
	err = persist(ctx, c.o.Jitter, func() error {
		h, err = c.session.store().Shared.Acquire(ctx, s.Node, p, registry.Hold{
			Sticky: q.Name != "",
			Holder: cluster.Holder{Addr: q.Addr, Network: q.Network, Container: q.Container,
				IfName: q.IfName, Namespace: q.Namespace, Name: q.Name, Nonce: nonce},
		})
		return err
	})
	return h, c.session.lapse(err)
}

func ownerOf(network, container, ifname string) ipam.Owner {
	return ipam.Owner{Network: network, Container: container, IfName: ifname}
}

// permit checks what the node's files say about a request, and draws tokens if it needs them.
func (c *commons) permit(ctx context.Context, q *agentcall.Request) error {
	err := c.permitted(ctx, q)
	if !errors.Is(err, local.ErrQuota) {
		return err
	}
	if err := c.drawLocked(ctx, q.Pool, q.Namespace); err != nil {
		return err
	}
	return c.permitted(ctx, q)
}

func (c *commons) permitted(ctx context.Context, q *agentcall.Request) (err error) {
	p, err := c.o.Local.Open(ctx, q.Pool, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return c.permits(ctx, p, q)
}

// permits checks a request against an open pool.
func (c *commons) permits(ctx context.Context, p *local.Pool, q *agentcall.Request) error {
	if err := p.Err(); err != nil {
		return err
	}
	if err := c.o.Local.Usable(&p.State); err != nil {
		return err
	}
	owner := ownerOf(q.Network, q.Container, q.IfName)
	held, err := p.Held(ctx, owner)
	if err == nil && len(held) > 0 {
		err = &ipam.DuplicateError{Owner: owner, Held: held[0]}
	}
	if err != nil {
		return err
	}
	return p.Permit(ctx, q.Namespace)
}

// put writes the reservation of an acquired address, unless the request has ended or hold has
// passed in between.
func (c *commons) put(
	ctx context.Context, q *agentcall.Request, addr netip.Addr,
) (got local.Allocation, err error) {
	p, err := c.o.Local.Open(ctx, q.Pool, false)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := c.permits(ctx, p, q); err != nil {
		return got, err
	}
	if err := ctx.Err(); err != nil {
		return got, err
	}
	return p.Put(ctx, addr, local.Request{
		Owner:     ownerOf(q.Network, q.Container, q.IfName),
		Namespace: q.Namespace,
	})
}

// undoAcquire releases what an intent's transaction has acquired, and removes the intent. If it
// fails, settleShared tries again.
func (c *commons) undoAcquire(ctx context.Context, in intent) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	err := c.finishAcquire(ctx, in)
	if err != nil {
		poke(c.noted)
	}
	return err
}

// settleShared finds the outcomes of interrupted acquisitions and releases what notes name. The
// caller has the turn.
func (c *commons) settleShared(ctx context.Context) error {
	left, err := c.intents.list(intentAcquire)
	if err != nil {
		return err
	}
	for _, in := range left {
		if err := c.finishAcquire(ctx, in); err != nil {
			return err
		}
	}
	return c.releaseNoted(ctx)
}

// finishAcquire makes sure that an interrupted acquisition does not commit any more. If it has,
// and the reservation was not written, it releases the address.
func (c *commons) finishAcquire(ctx context.Context, in intent) error {
	s, err := c.session.joined()
	if err != nil {
		return err
	}
	n, _, err := c.session.store().Blocks.Exclude(ctx, s.Node, in.Nonce)
	if err != nil {
		return fmt.Errorf("find the outcome of a request to pool %s: %w", in.Pool, c.session.lapse(err))
	}
	c.session.setNode(n)
	held, err := c.session.store().Shared.Held(ctx, c.o.Node.Name)
	if err != nil {
		return err
	}
	for _, h := range held {
		if h.Nonce != in.Nonce {
			continue
		}
		if err := c.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	return c.intents.remove(in)
}

// reserved reports whether the node's files have the reservation of a holder.
func (c *commons) reserved(ctx context.Context, h cluster.Holder) (has bool, err error) {
	p, err := c.o.Local.Open(ctx, h.Pool, true)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	leases, err := p.Leases(ctx)
	return slices.ContainsFunc(leases, func(l ipam.Lease) bool {
		return l.Addr == h.Addr && l.Owner.Network == h.Network &&
			l.Owner.Container == h.Container && l.Owner.IfName == h.IfName
	}), err
}

// releaseUnlessReserved releases a shared address of this node in the store if no reservation
// explains it. Only the agent writes such reservations, and it has the turn: none can appear
// between the look and the release, which compares the nonce.
func (c *commons) releaseUnlessReserved(ctx context.Context, h cluster.Holder) error {
	has, err := c.reserved(ctx, h)
	if err != nil || has {
		return err
	}
	if err := c.session.store().Shared.Release(ctx, h, false); err != nil {
		return fmt.Errorf("release %s: %w", h.Addr, c.session.lapse(err))
	}
	c.o.Log.Info("released", "pool", h.Pool, "address", h.Addr, "container", h.Container)
	return nil
}

// releaseNoted releases the shared addresses that the plugin has released, and removes the notes.
// The caller has the turn.
func (c *commons) releaseNoted(ctx context.Context) error {
	notes, err := c.o.Local.Notes()
	errs := []error{err}
	for _, n := range notes {
		if err := c.releaseNote(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("note of %s: %w", n.Addr, err))
		}
	}
	return errors.Join(errs...)
}

func (c *commons) releaseNote(ctx context.Context, n local.Note) error {
	h, err := c.session.store().Shared.Holder(ctx, n.Pool, n.Addr)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return err
	case h.Node == c.o.Node.Name && h.Network == n.Network && h.Container == n.Container &&
		h.IfName == n.IfName:
		if err := c.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	return c.o.Local.Done(n)
}

// run settles shared addresses when the plugin has written notes, until ctx ends.
func (c *commons) run(ctx context.Context) error {
	backoff := minBackoff
	for {
		select {
		case <-c.noted:
		case <-ctx.Done():
			return nil
		}
		err := c.settleInTurn(ctx)
		if errors.Is(err, errAway) || errors.Is(err, registry.ErrFenced) {
			continue // the next session settles them
		}
		c.problems.report("shared", err)
		if err == nil {
			backoff = minBackoff
			continue
		}
		backoff = min(2*backoff, maxBackoff)
		if !sleep(ctx, backoff/2+c.o.Jitter(backoff)) {
			return nil
		}
		poke(c.noted)
	}
}

func (c *commons) settleInTurn(ctx context.Context) error {
	end, err := c.turn.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := c.session.joined(); err != nil {
		return err
	}
	return c.settleShared(ctx)
}

// upkeep does what shared addresses and quotas need after each contact with the store. The caller
// has the turn.
func (c *commons) upkeep(ctx context.Context) error {
	due := c.reconciled.IsZero() || time.Since(c.reconciled) > reconcileTime
	errs := []error{c.settleShared(ctx)}
	if due {
		errs = append(errs, c.reconcile(ctx))
	}
	errs = append(errs, c.yield(ctx))
	return errors.Join(errs...)
}

// reconcile compares the shared addresses and tokens of this node with the store. It runs after
// each join, and every reconcileTime. The caller has the turn, and has settled all intents.
func (c *commons) reconcile(ctx context.Context) error {
	ready := c.trust.mayGrow() == nil // a restored store may show what the node released since
	last, listed := c.view.latest()
	ready = ready && listed
	var held []cluster.Holder
	for _, h := range last.Holders {
		if h.Node == c.o.Node.Name {
			held = append(held, h)
		}
	}
	if !ready {
		return nil
	}
	// The watch has listed the addresses already: thousands of agents need not list them again. Its
	// list may be old, but the release compares the nonce.
	for _, h := range held {
		if err := c.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	if err := c.findLost(ctx, held); err != nil {
		return err
	}
	if err := c.refreshTokens(ctx); err != nil {
		return err
	}
	c.reconciled = time.Now()
	return nil
}

// findLost reports shared addresses that containers of this node use and the store does not show
// as held by it: they were taken while the node was fenced.
func (c *commons) findLost(ctx context.Context, held []cluster.Holder) error {
	names, err := c.o.Local.Pools()
	if err != nil {
		return err
	}
	var lost []string
	for _, name := range names {
		shared, err := c.sharedLeases(ctx, name)
		if err != nil {
			return err
		}
		leases, err := c.lostShared(ctx, name, shared, held)
		if err != nil {
			return err
		}
		for _, l := range leases {
			lost = append(lost, l.Addr.String())
		}
	}
	if len(lost) > 0 {
		err = fmt.Errorf("containers of this node use shared addresses that it has lost: %v; "+
			"restart them", lost)
	}
	c.problems.report("lost addresses", err)
	return nil
}

// sharedLeases reads the reservations of shared addresses in a pool.
func (c *commons) sharedLeases(ctx context.Context, name string) (list []ipam.Lease, err error) {
	p, err := c.o.Local.Open(ctx, name, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	_, list, err = p.Usage(ctx)
	return list, err
}

// lostShared returns the reservations of shared addresses in a pool that the store does not show as
// held by their containers. It reads only holders that held lacks. The pool is not locked meanwhile,
// so that ADD and DEL do not wait for the store.
func (c *commons) lostShared(
	ctx context.Context, name string, shared []ipam.Lease, held []cluster.Holder,
) (lost []ipam.Lease, err error) {
	for _, l := range shared {
		own := func(h cluster.Holder) bool {
			return h.Pool == name && h.Addr == l.Addr && h.Node == c.o.Node.Name &&
				h.Container == l.Owner.Container
		}
		if slices.ContainsFunc(held, own) {
			continue
		}
		h, err := c.session.store().Shared.Holder(ctx, name, l.Addr)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return nil, err
		}
		if err != nil || !own(h) {
			lost = append(lost, l)
		}
	}
	return lost, nil
}
