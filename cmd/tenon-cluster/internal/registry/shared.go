package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// A shared block lists every address of it that is in use in its Grants, so that one document
// shows which are free and whether the block can be given up. A grant without node keeps the
// address of a sticky name that no attachment holds.

// Hold is a request for a shared address.
type Hold struct {
	cluster.Holder      // Addr may be the zero Addr for a sticky name
	Sticky         bool // the address belongs to Namespace and Name afterwards
}

// Acquire gives a shared address to an attachment: the requested address, the address of the
// sticky name, or a free one for a new sticky name. It makes a free block shared if necessary. With
// the nonce of an interrupted call it returns the address that the call acquired. ErrInUse names
// the holder; ErrFull; ErrRefused: the pool or the state of the node does not permit it. After an
// error other than ErrUnknown nothing is acquired later, unless an earlier call with the nonce
// returned ErrUnknown: then only Exclude makes sure of that.
func (r Shared) Acquire(
	ctx context.Context, n Node, p Pool, h Hold,
) (got cluster.Holder, err error) {
	if h.Nonce == "" {
		h.Nonce = r.o.Nonce()
	}
	if h.Sticky && (h.Namespace == "" || h.Name == "") {
		return got, fmt.Errorf("acquire a sticky address: %w: the name of the pod is not known",
			ErrRefused)
	}
	// The name or the address is the same in each try, so that only one of them can commit.
	if !h.Sticky && !h.Addr.IsValid() {
		return got, fmt.Errorf("acquire a shared address: %w: neither name nor address", ErrRefused)
	}
	a := acquisition{r: r, known: n, pool: p, h: h}
	err = r.gain(ctx, n.Name, func(ctx context.Context) error {
		got, err = a.try(ctx)
		return err
	})
	return got, err
}

// acquisition is the state of a call of Acquire.
type acquisition struct {
	r     Shared
	known Node
	pool  Pool
	h     Hold
	// Of the present try:
	node   Node
	sticky *cluster.Sticky
	rev    int64 // mod revision of the sticky name; 0 if it is absent
}

func (a *acquisition) try(ctx context.Context) (got cluster.Holder, err error) {
	if err := a.load(ctx); err != nil {
		return got, err
	}
	addr, err := a.address(ctx)
	if err != nil {
		return got, err
	}
	if err := a.pool.Allocatable(addr); err != nil {
		return got, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	slot, err := a.r.slot(ctx, a.pool, addr)
	if err != nil {
		return got, err
	}
	if slot.holder != nil && slot.holder.Nonce == a.h.Nonce {
		return *slot.holder, nil
	}
	if err := a.permitted(addr, slot); err != nil {
		return got, err
	}
	return a.commit(ctx, addr, slot)
}

// load reads node, pool and sticky name.
func (a *acquisition) load(ctx context.Context) error {
	r := a.r
	ops := append(r.readNode(a.known.Name), clientv3.OpGet(r.keys.Pool(a.pool.Name)))
	if a.h.Sticky {
		ops = append(ops, clientv3.OpGet(r.keys.Sticky(a.pool.Name, a.h.Namespace, a.h.Name)))
	}
	answers, err := r.read(ctx, "node "+a.known.Name, ops...)
	if err != nil {
		return err
	}
	if a.node, err = nodeOf(a.known.Name, answers); err != nil {
		return err
	}
	if a.pool, err = poolOf(a.pool.Name, answers[2]); err != nil {
		return err
	}
	a.sticky, a.rev = nil, 0
	if a.h.Sticky && len(answers[3].Kvs) > 0 {
		kv := answers[3].Kvs[0]
		s, err := cluster.Decode[cluster.Sticky](string(kv.Key), kv.Value)
		if err != nil {
			return err
		}
		a.sticky, a.rev = &s, kv.ModRevision
	}
	if ns := a.pool.Namespaces; len(ns) > 0 && !slices.Contains(ns, a.h.Namespace) {
		return fmt.Errorf("pool %s does not serve namespace %q: %w", a.pool.Name, a.h.Namespace,
			ErrRefused)
	}
	return nil
}

// address returns the address to acquire.
func (a *acquisition) address(ctx context.Context) (netip.Addr, error) {
	requested := a.h.Addr
	switch {
	case a.sticky == nil && requested.IsValid():
		return requested, nil
	case a.sticky == nil:
		return a.choose(ctx)
	case requested.IsValid() && requested != a.sticky.Addr:
		return requested, fmt.Errorf("%s/%s has address %s, not %s: %w", a.h.Namespace, a.h.Name,
			a.sticky.Addr, requested, ErrInUse)
	}
	return a.sticky.Addr, nil
}

// choose returns a free address of a shared block, or of a free block.
func (a *acquisition) choose(ctx context.Context) (netip.Addr, error) {
	r := a.r
	blocks, err := r.sharedBlocks(ctx, a.pool)
	if err != nil {
		return netip.Addr{}, err
	}
	cooling, _, err := r.list(ctx, r.keys.Cools(a.pool.Name), clientv3.WithKeysOnly())
	if err != nil {
		return netip.Addr{}, err
	}
	cool := map[string]bool{}
	for _, kv := range cooling {
		cool[string(kv.Key)] = true
	}
	for _, b := range blocks {
		if cool[r.keys.Cool(b.Pool, b.Block.Block)] {
			continue
		}
		for addr := range units(a.pool, b.Block.Block) {
			if _, used := b.Grants[addr]; !used && !cool[r.keys.Cool(b.Pool, alone(addr))] {
				return addr, nil
			}
		}
	}
	free, err := Blocks(a.r).Free(ctx, a.pool, a.known.Name, 1)
	if err != nil {
		return netip.Addr{}, err
	}
	for addr := range units(a.pool, free[0]) {
		return addr, nil
	}
	return netip.Addr{}, fmt.Errorf("pool %s: %w", a.pool.Name, ErrFull)
}

// units yields the addresses of a block, or the first addresses of its prefixes, that can be
// allocated without request.
func units(p Pool, block netip.Prefix) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		if p.PrefixBits > 0 {
			p.Prefixes(block)(func(unit netip.Prefix) bool { return yield(unit.Addr()) })
			return
		}
		for _, part := range p.Ranges(block) {
			for addr := part.Start; !part.End.Less(addr); addr = addr.Next() {
				if !yield(addr) {
					return
				}
			}
		}
	}
}

// sharedBlocks reads the shared blocks of a pool that have a shared address.
func (r Shared) sharedBlocks(ctx context.Context, p Pool) (blocks []Block, err error) {
	kvs, _, err := r.list(ctx, r.keys.Addrs(p.Name), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	seen := map[netip.Prefix]bool{}
	var ops []clientv3.Op
	for _, kv := range kvs {
		addr, err := netip.ParseAddr(cluster.Last(string(kv.Key)))
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", kv.Key, err)
		}
		if b, ok := p.BlockOf(addr); ok && !seen[b] {
			seen[b] = true
			ops = append(ops, clientv3.OpGet(r.keys.Block(p.Name, b)))
		}
	}
	for part := range slices.Chunk(ops, maxBlocks) {
		answers, err := r.read(ctx, "shared blocks of pool "+p.Name, part...)
		if err != nil {
			return nil, err
		}
		for _, answer := range answers {
			if len(answer.Kvs) == 0 {
				continue
			}
			b, err := decodeBlock(answer.Kvs[0])
			if err != nil {
				return nil, err
			}
			if b.State == cluster.BlockShared {
				blocks = append(blocks, b)
			}
		}
	}
	return blocks, nil
}

// slot is the state of a shared address.
type slot struct {
	block    Block // its Revision is 0 if the block is free
	holder   *cluster.Holder
	revision int64 // of holder
	cool     bool  // the address or its block cools down
}

// slot reads the state of an address.
func (r Shared) slot(ctx context.Context, p Pool, addr netip.Addr) (s slot, err error) {
	block, ok := p.BlockOf(addr)
	if !ok {
		return s, fmt.Errorf("%s is not in pool %s: %w", addr, p.Name, ErrRefused)
	}
	answers, err := r.read(ctx, "address "+addr.String(),
		clientv3.OpGet(r.keys.Addr(p.Name, addr)),
		clientv3.OpGet(r.keys.Block(p.Name, block)),
		clientv3.OpGet(r.keys.Cool(p.Name, block), clientv3.WithCountOnly()),
		clientv3.OpGet(r.keys.Cool(p.Name, alone(addr)), clientv3.WithCountOnly()))
	if err != nil {
		return s, err
	}
	if s.holder, s.revision, err = holderOf(answers[0]); err != nil {
		return s, err
	}
	s.block = Block{Block: cluster.Block{Schema: cluster.Schema, Pool: p.Name, Block: block}}
	if len(answers[1].Kvs) > 0 {
		if s.block, err = decodeBlock(answers[1].Kvs[0]); err != nil {
			return s, err
		}
	}
	s.cool = answers[2].Count+answers[3].Count > 0
	return s, nil
}

func holderOf(answer *pb.RangeResponse) (*cluster.Holder, int64, error) {
	if len(answer.Kvs) == 0 {
		return nil, 0, nil
	}
	kv := answer.Kvs[0]
	h, err := cluster.Decode[cluster.Holder](string(kv.Key), kv.Value)
	return &h, kv.ModRevision, err
}

// permitted checks that an address can be acquired.
func (a *acquisition) permitted(addr netip.Addr, s slot) error {
	if err := a.r.mayGain(a.node, a.known); err != nil {
		return err
	}
	inUse := func(format string, args ...any) error {
		return fmt.Errorf("%s is %s: %w", addr, fmt.Sprintf(format, args...), ErrInUse)
	}
	grant, granted := s.block.Grants[addr]
	switch b := s.block; {
	case s.holder != nil:
		return inUse("held by container %s (%s) on node %s", s.holder.Container, s.holder.IfName,
			s.holder.Node)
	case b.State == cluster.BlockOwned:
		return inUse("in block %s of node %s", b.Block.Block, b.Owner)
	case b.State == cluster.BlockCooling, s.cool:
		return inUse("cooling down")
	case granted && grant.Node != "":
		return inUse("granted to node %s", grant.Node)
	case granted && (a.sticky == nil || a.sticky.Addr != addr):
		return inUse("reserved for a sticky name")
	}
	return nil
}

// commit writes the address.
func (a *acquisition) commit(ctx context.Context, addr netip.Addr, s slot) (cluster.Holder, error) {
	r, pool := a.r, a.pool.Name
	h := a.h.Holder
	h.Schema, h.Pool, h.Addr, h.Since = cluster.Schema, pool, addr, r.o.Now()
	h.Node, h.Epoch = a.node.Name, a.node.Epoch
	if !a.h.Sticky {
		h.Name = ""
	}
	block := s.block.Block
	if s.block.Revision == 0 {
		block.State, block.Nonce, block.Since = cluster.BlockShared, a.h.Nonce, r.o.Now()
	}
	block = withGrant(block, addr, cluster.Grant{Node: h.Node, Epoch: h.Epoch, Nonce: h.Nonce})
	var c change
	c.same(r.keys.Node(h.Node), a.node.Revision)
	c.same(r.keys.Pool(pool), a.pool.Revision)
	c.same(r.keys.Block(pool, block.Block), s.block.Revision)
	c.absent(r.keys.Addr(pool, addr))
	c.absent(r.keys.Cool(pool, block.Block))
	c.absent(r.keys.Cool(pool, alone(addr)))
	c.put(r.keys.Addr(pool, addr), h)
	c.put(r.keys.Block(pool, block.Block), block)
	if a.h.Sticky {
		key := r.keys.Sticky(pool, h.Namespace, h.Name)
		c.same(key, a.rev)
		if a.sticky == nil {
			c.put(key, cluster.Sticky{
				Schema: cluster.Schema, Pool: pool, Namespace: h.Namespace, Name: h.Name, Addr: addr,
			})
		}
	}
	_, err := r.write(ctx, "acquire "+addr.String(), c)
	return h, err
}

// Release frees a shared address if the holder with this nonce still has it. A shared block
// without addresses cools down. Unless forget is set, a sticky name keeps its address.
func (r Shared) Release(ctx context.Context, h cluster.Holder, forget bool) error {
	leases := newCoolLeases(r.requests)
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		pool, err := r.pool(ctx, h.Pool)
		if errors.Is(err, ErrNotFound) { // a pool with an address cannot be deleted
			return nil
		}
		if err != nil {
			return err
		}
		s, err := r.slot(ctx, pool, h.Addr)
		switch {
		case err != nil:
			return err
		case s.holder == nil || s.holder.Nonce != h.Nonce:
			return nil
		}
		var c change
		c.same(r.keys.Addr(h.Pool, h.Addr), s.revision)
		c.then = append(c.then, clientv3.OpDelete(r.keys.Addr(h.Pool, h.Addr)))
		v := vacancy{pool: pool, slot: s, forget: forget, leases: leases, reason: "released"}
		return r.vacate(ctx, v, c)
	})
	leases.drop(ctx, unknown)
	return err
}

// vacancy is an address that its holder has left.
type vacancy struct {
	pool   Pool
	slot   slot
	forget bool // also the sticky name
	leases *coolLeases
	reason string
}

// vacate completes and commits the transaction that deletes a holder.
func (r Shared) vacate(ctx context.Context, v vacancy, c change) error {
	h := v.slot.holder
	keep := h.Name != "" && !v.forget
	if h.Name != "" && v.forget {
		c.then = append(c.then, clientv3.OpDelete(r.keys.Sticky(h.Pool, h.Namespace, h.Name)))
	}
	return r.drop(ctx, v, h.Addr, keep, c)
}

// drop completes and commits a transaction: an address leaves the list of its shared block, or
// stays there for its sticky name. The block cools down when the list is empty.
func (r Shared) drop(
	ctx context.Context, v vacancy, addr netip.Addr, keep bool, c change,
) error {
	next := v.slot.block
	next.Block = withoutGrant(next.Block, addr)
	if keep && next.Grants != nil {
		next.Grants[addr] = cluster.Grant{}
	}
	switch {
	case len(next.Grants) == 0 && next.State == cluster.BlockShared:
		lease, err := v.leases.of(ctx, v.pool)
		if err != nil {
			return err
		}
		r.cool(&c, next, lease, v.reason)
	case next.Revision != 0:
		key := r.keys.Block(next.Pool, next.Block.Block)
		c.same(key, next.Revision)
		c.put(key, next.Block)
	}
	_, err := v.leases.write(ctx, "release "+addr.String(), c)
	return err
}

// takeHolder takes a shared address from a fenced node. The address cools down.
func (r Shared) takeHolder(
	ctx context.Context, n Node, h cluster.Holder, leases *coolLeases, reason string,
) error {
	pool, err := r.pool(ctx, h.Pool)
	if err != nil {
		return err
	}
	s, err := r.slot(ctx, pool, h.Addr)
	if err != nil {
		return err
	}
	if s.holder == nil || s.holder.Nonce != h.Nonce {
		return nil
	}
	lease, err := leases.of(ctx, pool)
	if err != nil {
		return err
	}
	var c change
	c.same(r.keys.Node(n.Name), n.Revision)
	c.same(r.keys.Addr(h.Pool, h.Addr), s.revision)
	c.then = append(c.then, clientv3.OpDelete(r.keys.Addr(h.Pool, h.Addr)),
		clientv3.OpPut(r.keys.Cool(h.Pool, alone(h.Addr)), reason, clientv3.WithLease(lease)))
	return r.vacate(ctx, vacancy{pool: pool, slot: s, leases: leases, reason: reason}, c)
}

// Forget ends the reservation of an address for a sticky name. ErrInUse: an attachment holds it.
func (r Shared) Forget(ctx context.Context, pool, namespace, name string) error {
	leases := newCoolLeases(r.requests)
	key := r.keys.Sticky(pool, namespace, name)
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		answers, err := r.read(ctx, "sticky name", clientv3.OpGet(key),
			clientv3.OpGet(r.keys.Pool(pool)))
		if err != nil || len(answers[0].Kvs) == 0 {
			return err
		}
		sticky, err := cluster.Decode[cluster.Sticky](key, answers[0].Kvs[0].Value)
		if err != nil {
			return err
		}
		p, err := poolOf(pool, answers[1])
		if err != nil {
			return err
		}
		s, err := r.slot(ctx, p, sticky.Addr)
		switch {
		case err != nil:
			return err
		case s.holder != nil:
			return fmt.Errorf("%s is held by container %s on node %s: %w", sticky.Addr,
				s.holder.Container, s.holder.Node, ErrInUse)
		}
		var c change
		c.same(key, answers[0].Kvs[0].ModRevision)
		c.absent(r.keys.Addr(pool, sticky.Addr))
		c.then = append(c.then, clientv3.OpDelete(key))
		v := vacancy{pool: p, slot: s, leases: leases, reason: "forgotten"}
		return r.drop(ctx, v, sticky.Addr, false, c)
	})
	leases.drop(ctx, unknown)
	return err
}

// Held reads the shared addresses that a node holds.
func (r Shared) Held(ctx context.Context, node string) (held []cluster.Holder, err error) {
	kvs, _, err := r.list(ctx, r.keys.Addrs(""))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		h, err := cluster.Decode[cluster.Holder](string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		if h.Node == node {
			held = append(held, h)
		}
	}
	return held, nil
}

// coolLeases grants the lease of a pool's cooldown once per call.
type coolLeases struct {
	r    *requests
	ids  map[string]clientv3.LeaseID
	used bool
}

func newCoolLeases(r *requests) *coolLeases {
	return &coolLeases{r: r, ids: map[string]clientv3.LeaseID{}}
}

func (l *coolLeases) of(ctx context.Context, p Pool) (clientv3.LeaseID, error) {
	if id, ok := l.ids[p.Name]; ok {
		return id, nil
	}
	id, err := l.r.lease(ctx, time.Duration(p.Cooldown))
	if err == nil {
		l.ids[p.Name] = id
	}
	return id, err
}

// named is of for the name of a pool.
func (l *coolLeases) named(ctx context.Context, pool string) (clientv3.LeaseID, error) {
	if id, ok := l.ids[pool]; ok {
		return id, nil
	}
	p, err := l.r.pool(ctx, pool)
	if err != nil {
		return 0, err
	}
	return l.of(ctx, p)
}

// write commits a transaction that may use the leases, and forgets them if one has ended.
func (l *coolLeases) write(ctx context.Context, what string, c change) (revision int64, err error) {
	revision, err = l.r.write(ctx, what, c)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		clear(l.ids)
		return 0, errAgain
	}
	l.used = l.used || err == nil
	return revision, err
}

// drop revokes leases that no transaction has used or may still use.
func (l *coolLeases) drop(ctx context.Context, unknown bool) {
	if unknown || l.used {
		return
	}
	for id := range maps.Values(l.ids) {
		l.r.revoke(ctx, id)
	}
}

// Holder reads the holder of a shared address. ErrNotFound: it has none.
func (r Shared) Holder(
	ctx context.Context, pool string, addr netip.Addr,
) (cluster.Holder, error) {
	answers, err := r.read(ctx, "address "+addr.String(), clientv3.OpGet(r.keys.Addr(pool, addr)))
	if err != nil {
		return cluster.Holder{}, err
	}
	h, _, err := holderOf(answers[0])
	if err == nil && h == nil {
		err = fmt.Errorf("%s of pool %s has no holder: %w", addr, pool, ErrNotFound)
	}
	if err != nil {
		return cluster.Holder{}, err
	}
	return *h, nil
}
