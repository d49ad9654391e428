package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
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

// commons is the state of the agent's part of shared addresses and quotas.
type commons struct {
	noted      chan struct{}     // the plugin has written notes
	reconciled time.Time         // the last comparison with the store in this session
	drawn      map[string]uint64 // tokens that were unused at the last renewal, by POOL/NAMESPACE
}

func newCommons() commons {
	return commons{noted: make(chan struct{}, 1), drawn: map[string]uint64{}}
}

// refuse returns the error of a request that has nothing to do with the contact to the store.
func refuse(pool string, err error) *cni.Error {
	return cni.Errorf(cni.CodeInvalidConfig, "pool %s: %w", pool, err)
}

// handleAcquire gives a shared address to an attachment.
func (a *Agent) handleAcquire(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
	got, err := a.acquire(ctx, q)
	switch {
	case errors.Is(err, registry.ErrRefused), errors.Is(err, local.ErrNotAllocatable),
		errors.Is(err, local.ErrNamespace):
		return &agentcall.Reply{Error: refuse(q.Pool, err)}
	case err != nil:
		return &agentcall.Reply{Error: a.explain(q.Pool, err)}
	}
	return &agentcall.Reply{Address: got.Addr, Gateway: got.Gateway}
}

// acquire makes the transaction and then the reservation. After an error neither stays.
func (a *Agent) acquire(
	ctx context.Context, q *agentcall.Request,
) (got local.Allocation, err error) {
	if err := a.attempted(ctx); err != nil {
		return got, err
	}
	if err := a.trust.settled(ctx); err != nil {
		return got, err
	}
	end, err := a.exclusive(ctx)
	if err != nil {
		return got, err
	}
	defer end()
	p, err := a.mayAcquire(ctx, q.Pool)
	if err != nil {
		return got, err
	}
	if err := a.settleShared(ctx); err != nil {
		return got, err
	}
	if err := a.permit(ctx, q); err != nil {
		return got, err
	}
	in := intent{Kind: intentAcquire, Nonce: a.o.Nonce(), Pool: q.Pool, Since: a.o.now().wall}
	if err := a.intend(in); err != nil {
		return got, err
	}
	h, err := a.acquireStored(ctx, p, q, in.Nonce)
	if errors.Is(err, registry.ErrUnknown) || err != nil && ctx.Err() != nil {
		poke(a.commons.noted)
		return got, err // the intent stays until the outcome is known
	}
	if err == nil {
		unit := local.Block{Block: unitOf(p.Pool, h.Addr)}
		if err = errors.Join(a.trust.mayGrow(), a.trust.keepSeen()); err == nil {
			err = a.hold.guardNew(ctx, q.Pool, []local.Block{unit})
		}
		if err == nil {
			got, err = a.put(ctx, q, h.Addr)
		}
		if err != nil {
			err = errors.Join(err, a.undoAcquire(ctx, in))
			return got, err
		}
		a.o.Log.Info("acquired", "pool", q.Pool, "address", h.Addr, "container", q.Container)
	}
	return got, errors.Join(err, a.settle(in))
}

// mayAcquire returns the pool if the node may acquire shared addresses of it.
func (a *Agent) mayAcquire(ctx context.Context, name string) (registry.Pool, error) {
	p, err := a.mayClaim(ctx, name)
	if errors.Is(err, errMaxBlocks) { // shared blocks belong to no node
		err = nil
	}
	return p, err
}

// acquireStored makes the transaction, and repeats it with the same nonce while its outcome is
// unknown.
func (a *Agent) acquireStored(
	ctx context.Context, p registry.Pool, q *agentcall.Request, nonce string,
) (h cluster.Holder, err error) {
	s, err := a.session.joined()
	if err != nil {
		return h, err
	}
	err = a.persist(ctx, func() error {
		h, err = a.session.store().Shared.Acquire(ctx, s.Node, p, registry.Hold{
			Sticky: q.Name != "",
			Holder: cluster.Holder{Addr: q.Addr, Network: q.Network, Container: q.Container,
				IfName: q.IfName, Namespace: q.Namespace, Name: q.Name, Nonce: nonce},
		})
		return err
	})
	return h, a.session.lapse(err)
}

func ownerOf(network, container, ifname string) ipam.Owner {
	return ipam.Owner{Network: network, Container: container, IfName: ifname}
}

// permit checks what the node's files say about a request, and draws tokens if it needs them.
func (a *Agent) permit(ctx context.Context, q *agentcall.Request) error {
	err := a.permitted(ctx, q)
	if !errors.Is(err, local.ErrQuota) {
		return err
	}
	if err := a.drawLocked(ctx, q.Pool, q.Namespace); err != nil {
		return err
	}
	return a.permitted(ctx, q)
}

func (a *Agent) permitted(ctx context.Context, q *agentcall.Request) (err error) {
	p, err := a.o.Local.Open(ctx, q.Pool, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return a.permits(ctx, p, q)
}

// permits checks a request against an open pool.
func (a *Agent) permits(ctx context.Context, p *local.Pool, q *agentcall.Request) error {
	if err := p.Err(); err != nil {
		return err
	}
	if err := a.o.Local.Usable(&p.State); err != nil {
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
func (a *Agent) put(
	ctx context.Context, q *agentcall.Request, addr netip.Addr,
) (got local.Allocation, err error) {
	p, err := a.o.Local.Open(ctx, q.Pool, false)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := a.permits(ctx, p, q); err != nil {
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
func (a *Agent) undoAcquire(ctx context.Context, in intent) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	err := a.finishAcquire(ctx, in)
	if err != nil {
		poke(a.commons.noted)
	}
	return err
}

// settleShared finds the outcomes of interrupted acquisitions and releases what notes name. The
// caller has the turn.
func (a *Agent) settleShared(ctx context.Context) error {
	left, err := a.intents(intentAcquire)
	if err != nil {
		return err
	}
	for _, in := range left {
		if err := a.finishAcquire(ctx, in); err != nil {
			return err
		}
	}
	return a.releaseNoted(ctx)
}

// finishAcquire makes sure that an interrupted acquisition does not commit any more. If it has,
// and the reservation was not written, it releases the address.
func (a *Agent) finishAcquire(ctx context.Context, in intent) error {
	s, err := a.session.joined()
	if err != nil {
		return err
	}
	n, _, err := a.session.store().Blocks.Exclude(ctx, s.Node, in.Nonce)
	if err != nil {
		return fmt.Errorf("find the outcome of a request to pool %s: %w", in.Pool, a.session.lapse(err))
	}
	a.session.setNode(n)
	held, err := a.session.store().Shared.Held(ctx, a.o.Node.Name)
	if err != nil {
		return err
	}
	for _, h := range held {
		if h.Nonce != in.Nonce {
			continue
		}
		if err := a.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	return a.settle(in)
}

// reserved reports whether the node's files have the reservation of a holder.
func (a *Agent) reserved(ctx context.Context, h cluster.Holder) (has bool, err error) {
	p, err := a.o.Local.Open(ctx, h.Pool, true)
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
func (a *Agent) releaseUnlessReserved(ctx context.Context, h cluster.Holder) error {
	has, err := a.reserved(ctx, h)
	if err != nil || has {
		return err
	}
	if err := a.session.store().Shared.Release(ctx, h, false); err != nil {
		return fmt.Errorf("release %s: %w", h.Addr, a.session.lapse(err))
	}
	a.o.Log.Info("released", "pool", h.Pool, "address", h.Addr, "container", h.Container)
	return nil
}

// releaseNoted releases the shared addresses that the plugin has released, and removes the notes.
// The caller has the turn.
func (a *Agent) releaseNoted(ctx context.Context) error {
	notes, err := a.o.Local.Notes()
	errs := []error{err}
	for _, n := range notes {
		if err := a.releaseNote(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("note of %s: %w", n.Addr, err))
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) releaseNote(ctx context.Context, n local.Note) error {
	h, err := a.session.store().Shared.Holder(ctx, n.Pool, n.Addr)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return err
	case h.Node == a.o.Node.Name && h.Network == n.Network && h.Container == n.Container &&
		h.IfName == n.IfName:
		if err := a.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	return a.o.Local.Done(n)
}

// common settles shared addresses when the plugin has written notes, until ctx ends.
func (a *Agent) common(ctx context.Context) error {
	backoff := minBackoff
	for {
		select {
		case <-a.commons.noted:
		case <-ctx.Done():
			return nil
		}
		err := a.settleInTurn(ctx)
		if errors.Is(err, errAway) || errors.Is(err, registry.ErrFenced) {
			continue // the next session settles them
		}
		a.problems.report("shared", err)
		if err == nil {
			backoff = minBackoff
			continue
		}
		backoff = min(2*backoff, maxBackoff)
		if !sleep(ctx, backoff/2+a.o.Jitter(backoff)) {
			return nil
		}
		poke(a.commons.noted)
	}
}

func (a *Agent) settleInTurn(ctx context.Context) error {
	end, err := a.exclusive(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := a.session.joined(); err != nil {
		return err
	}
	return a.settleShared(ctx)
}

// commonUpkeep does what shared addresses and quotas need after each contact with the store. The caller has the turn.
func (a *Agent) commonUpkeep(ctx context.Context) error {
	due := a.commons.reconciled.IsZero() || time.Since(a.commons.reconciled) > reconcileTime
	errs := []error{a.settleShared(ctx)}
	if due {
		errs = append(errs, a.reconcile(ctx))
	}
	errs = append(errs, a.yield(ctx))
	return errors.Join(errs...)
}

// reconcile compares the shared addresses and tokens of this node with the store. It runs after
// each join, and every reconcileTime. The caller has the turn, and has settled all intents.
func (a *Agent) reconcile(ctx context.Context) error {
	ready := a.trust.mayGrow() == nil // a restored store may show what the node released since
	last, listed := a.view.latest()
	ready = ready && listed
	var held []cluster.Holder
	for _, h := range last.Holders {
		if h.Node == a.o.Node.Name {
			held = append(held, h)
		}
	}
	if !ready {
		return nil
	}
	// The watch has listed the addresses already: thousands of agents need not list them again. Its
	// list may be old, but the release compares the nonce.
	for _, h := range held {
		if err := a.releaseUnlessReserved(ctx, h); err != nil {
			return err
		}
	}
	if err := a.findLost(ctx, held); err != nil {
		return err
	}
	if err := a.refreshTokens(ctx); err != nil {
		return err
	}
	a.commons.reconciled = time.Now()
	return nil
}

// findLost reports shared addresses that containers of this node use and the store does not show
// as held by it: they were taken while the node was fenced.
func (a *Agent) findLost(ctx context.Context, held []cluster.Holder) error {
	names, err := a.o.Local.Pools()
	if err != nil {
		return err
	}
	var lost []string
	for _, name := range names {
		p, err := a.o.Local.Open(ctx, name, true)
		if err != nil {
			return err
		}
		leases, err := a.lostShared(ctx, name, p, held)
		if err = errors.Join(err, p.Close()); err != nil {
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
	a.problems.report("lost addresses", err)
	return nil
}
