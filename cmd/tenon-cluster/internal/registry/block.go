package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func decodeBlock(kv *mvccpb.KeyValue) (Block, error) {
	b, err := cluster.Decode[cluster.Block](string(kv.Key), kv.Value)
	return Block{Block: b, Generation: kv.CreateRevision, Revision: kv.ModRevision}, err
}

// alone returns the prefix of a single address, which names it in lists and keys.
func alone(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// compareRefs orders the list of a node.
func compareRefs(a, b cluster.BlockRef) int {
	if c := strings.Compare(a.Pool, b.Pool); c != 0 {
		return c
	}
	return a.Block.Compare(b.Block)
}

// with returns the node's document with more blocks in its list.
func with(n cluster.Node, refs ...cluster.BlockRef) cluster.Node {
	n.Blocks = slices.Concat(n.Blocks, refs)
	slices.SortFunc(n.Blocks, compareRefs)
	return n
}

// withGrant returns the block with one more address in its list.
func withGrant(b cluster.Block, a netip.Addr, g cluster.Grant) cluster.Block {
	b.Grants = maps.Clone(b.Grants)
	if b.Grants == nil {
		b.Grants = map[netip.Addr]cluster.Grant{}
	}
	b.Grants[a] = g
	return b
}

// withoutGrant returns the block without an address in its list.
func withoutGrant(b cluster.Block, a netip.Addr) cluster.Block {
	b.Grants = maps.Clone(b.Grants)
	delete(b.Grants, a)
	return b
}

// withoutRefs returns the node's document without some blocks.
func withoutRefs(n cluster.Node, drop func(cluster.BlockRef) bool) cluster.Node {
	n.Blocks = slices.DeleteFunc(slices.Clone(n.Blocks), drop)
	return n
}

// Free reads the keys of window blocks with one request, and makes windows such requests before
// it lists the whole pool.
const (
	window  = 64
	windows = 4
)

// Free returns at most count free blocks for a node, in the order in which it should try them. It
// frees cooled-down blocks if it needs them. ErrFull.
func (r Blocks) Free(
	ctx context.Context, p Pool, node string, count int,
) ([]netip.Prefix, error) {
	total := p.Blocks()
	start := p.Start(node)
	var free []netip.Prefix
	for i := uint64(0); i < min(total, window*windows) && len(free) < count; i += window {
		found, err := r.freeOf(ctx, p, func(yield func(netip.Prefix) bool) {
			for j := i; j < min(i+window, total) && yield(p.Block((start+j)%total)); j++ {
			}
		})
		if err != nil {
			return nil, err
		}
		free = append(free, found...)
	}
	if len(free) == 0 && total > window*windows {
		var err error
		if free, err = r.freeOfAll(ctx, p, start, count); err != nil {
			return nil, err
		}
	}
	if len(free) == 0 {
		freed, err := r.expire(ctx, p.Name, count)
		if err != nil {
			return nil, err
		}
		// The pool may have excluded a block since it was claimed.
		free = slices.DeleteFunc(freed, func(b netip.Prefix) bool { return p.Units(b) == 0 })
	}
	if len(free) == 0 {
		return nil, fmt.Errorf("pool %s: %w", p.Name, ErrFull)
	}
	return free[:min(len(free), count)], nil
}

// freeOf returns the candidates without a key that have an address to allocate.
func (r Blocks) freeOf(
	ctx context.Context, p Pool, candidates func(func(netip.Prefix) bool),
) (free []netip.Prefix, err error) {
	blocks := slices.Collect(candidates)
	ops := make([]clientv3.Op, len(blocks))
	for i, b := range blocks {
		ops[i] = clientv3.OpGet(r.keys.Block(p.Name, b), clientv3.WithCountOnly())
	}
	answers, err := r.read(ctx, "blocks of pool "+p.Name, ops...)
	if err != nil {
		return nil, err
	}
	for i, b := range blocks {
		if answers[i].Count == 0 && p.Units(b) > 0 {
			free = append(free, b)
		}
	}
	return free, nil
}

// freeOfAll searches the whole pool.
func (r Blocks) freeOfAll(
	ctx context.Context, p Pool, start uint64, count int,
) (free []netip.Prefix, err error) {
	kvs, _, err := r.list(ctx, r.keys.Blocks(p.Name), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool, len(kvs))
	for _, kv := range kvs {
		taken[string(kv.Key)] = true
	}
	for i := uint64(0); i < p.Blocks() && len(free) < count; i++ {
		b := p.Block((start + i) % p.Blocks())
		if !taken[r.keys.Block(p.Name, b)] && p.Units(b) > 0 {
			free = append(free, b)
		}
	}
	return free, nil
}

// Claim makes the node the owner of free blocks, at most 40. If some are no longer free it claims
// the others. With the nonce of an interrupted call it returns the blocks that the call claimed.
// ErrConflict: all blocks are in use, or the pool has changed. ErrFull: the node has the pool's
// MaxBlocks. ErrRefused: the node drains, or the pool does not serve it. ErrFenced, ErrSuspect,
// ErrIdentity. After an error other than ErrUnknown nothing is claimed later, unless an earlier
// call with the nonce returned ErrUnknown: then only Exclude makes sure of that.
func (r Blocks) Claim(
	ctx context.Context, n Node, p Pool, blocks []netip.Prefix, nonce string,
) (now Node, claimed []Block, err error) {
	if nonce == "" {
		nonce = r.o.Nonce()
	}
	if err := claimable(p, blocks); err != nil {
		return n, nil, err
	}
	c := claim{r: r, known: n, now: n, pool: p, blocks: slices.Clone(blocks), nonce: nonce}
	err = r.gain(ctx, n.Name, func(ctx context.Context) error {
		claimed, err = c.try(ctx)
		return err
	})
	return c.now, claimed, err
}

// claimable checks the blocks of a claim.
func claimable(p Pool, blocks []netip.Prefix) error {
	if len(blocks) == 0 || len(blocks) > maxBlocks {
		return fmt.Errorf("claim %d blocks: %w: a claim has 1 to %d", len(blocks), ErrRefused, maxBlocks)
	}
	seen := map[netip.Prefix]bool{}
	for _, b := range blocks {
		if !p.IsBlock(b) || seen[b] {
			return fmt.Errorf("claim %s: %w: it is no block of pool %s, or occurs twice", b,
				ErrRefused, p.Name)
		}
		seen[b] = true
	}
	return nil
}

// claim is the state of a call of Claim.
type claim struct {
	r      Blocks
	known  Node // by the caller
	now    Node // at the revision that the next try compares
	pool   Pool
	blocks []netip.Prefix // that may be free
	nonce  string
	stale  bool // now must be read again
}

func (c *claim) try(ctx context.Context) ([]Block, error) {
	r := c.r
	if c.stale {
		now, err := r.node(ctx, c.known.Name)
		if err != nil {
			return nil, err
		}
		c.now = now
	}
	c.stale = true
	if refs := claimedWith(c.now.Node, c.nonce); len(refs) > 0 {
		return r.blocksOf(ctx, c.now, refs)
	}
	if len(c.blocks) == 0 {
		return nil, fmt.Errorf("claim blocks of pool %s: they are in use, or the pool has changed: %w",
			c.pool.Name, ErrConflict)
	}
	if err := c.permitted(); err != nil {
		return nil, err
	}
	t, next, written := c.change()
	o, err := r.commit(ctx, fmt.Sprintf("claim %d blocks of pool %s", len(c.blocks), c.pool.Name), t)
	switch {
	case err != nil:
		return nil, err
	case !o.held:
		return nil, c.conflict(o.answers)
	}
	for i := range written {
		written[i].Generation, written[i].Revision = o.revision, o.revision
	}
	c.now = Node{Node: next, Revision: o.revision, Live: c.now.Live}
	return written, nil
}

// permitted checks the rules for a claim.
func (c *claim) permitted() error {
	if err := c.r.mayGain(c.now, c.known); err != nil {
		return err
	}
	for key, value := range c.pool.Nodes {
		if c.now.Labels[key] != value {
			return fmt.Errorf("pool %s serves nodes with label %s=%s: %w", c.pool.Name, key, value,
				ErrRefused)
		}
	}
	if c.pool.MaxBlocks == 0 {
		return nil
	}
	have := 0
	for _, ref := range c.now.Blocks {
		if ref.Pool == c.pool.Name {
			have++
		}
	}
	c.blocks = c.blocks[:min(len(c.blocks), max(c.pool.MaxBlocks-have, 0))]
	if len(c.blocks) == 0 {
		return fmt.Errorf("node %s has %d blocks of pool %s, the pool's maxBlocks is %d: %w",
			c.now.Name, have, c.pool.Name, c.pool.MaxBlocks, ErrFull)
	}
	return nil
}

// change returns the transaction, and the node and the blocks that it writes.
func (c *claim) change() (t change, next cluster.Node, blocks []Block) {
	r := c.r
	t.same(r.keys.Node(c.now.Name), c.now.Revision)
	t.same(r.keys.Pool(c.pool.Name), c.pool.Revision)
	t.otherwise = append(t.otherwise,
		clientv3.OpGet(r.keys.Pool(c.pool.Name), clientv3.WithKeysOnly()))
	var refs []cluster.BlockRef
	for _, b := range c.blocks {
		key := r.keys.Block(c.pool.Name, b)
		block := cluster.Block{
			Schema: cluster.Schema, Pool: c.pool.Name, Block: b, State: cluster.BlockOwned,
			Owner: c.now.Name, Epoch: c.now.Epoch, Nonce: c.nonce, Since: r.o.Now(),
		}
		t.absent(key)
		t.put(key, block)
		t.otherwise = append(t.otherwise, clientv3.OpGet(key, clientv3.WithCountOnly()))
		refs = append(refs, cluster.BlockRef{Pool: c.pool.Name, Block: b, Nonce: c.nonce})
		blocks = append(blocks, Block{Block: block})
	}
	next = with(c.now.Node, refs...)
	t.put(r.keys.Node(c.now.Name), next)
	return t, next, blocks
}

// conflict drops the blocks that are not free any more.
func (c *claim) conflict(answers []*pb.RangeResponse) error {
	if kvs := answers[0].Kvs; len(kvs) == 0 || kvs[0].ModRevision != c.pool.Revision {
		// An earlier try may have committed before the pool changed: look once more.
		c.blocks = nil
	}
	free := c.blocks[:0]
	for i, b := range c.blocks {
		if answers[i+1].Count == 0 {
			free = append(free, b)
		}
	}
	c.blocks = free
	return errAgain
}

// claimedWith returns the entries of a node's list with a nonce.
func claimedWith(n cluster.Node, nonce string) (refs []cluster.BlockRef) {
	for _, ref := range n.Blocks {
		if nonce != "" && ref.Nonce == nonce {
			refs = append(refs, ref)
		}
	}
	return refs
}

// blocksOf reads the blocks of entries of a node's list as they are while the node is unchanged.
func (r *requests) blocksOf(
	ctx context.Context, n Node, refs []cluster.BlockRef,
) (blocks []Block, err error) {
	for part := range slices.Chunk(refs, maxOps-2) {
		c := change{bound: true}
		c.same(r.keys.Node(n.Name), n.Revision)
		for _, ref := range part {
			c.then = append(c.then, clientv3.OpGet(r.keys.Block(ref.Pool, ref.Block)))
		}
		answers, err := r.readIf(ctx, "blocks of node "+n.Name, c)
		if err != nil {
			return nil, err
		}
		for i, answer := range answers {
			if len(answer.Kvs) == 0 {
				return nil, fmt.Errorf("block %s of pool %s is in the list of node %s: %w",
					part[i].Block, part[i].Pool, n.Name, ErrNotFound)
			}
			b, err := decodeBlock(answer.Kvs[0])
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// Exclude makes sure that a transaction with this nonce never commits any more: it changes the
// node's document, which every transaction that gives the node something compares. It returns the
// blocks that the transaction did claim. Only Name of n is used. ErrNotFound: the node is
// deleted, and nothing can commit.
func (r Blocks) Exclude(
	ctx context.Context, n Node, nonce string,
) (now Node, claimed []Block, err error) {
	first := int64(0)
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.node(ctx, n.Name)
		if err != nil {
			return err
		}
		if refs := claimedWith(now.Node, nonce); len(refs) > 0 {
			claimed, err = r.blocksOf(ctx, now, refs)
			return err
		}
		if first == 0 {
			first = now.Revision
		}
		if now.Revision != first { // it has changed since the call began
			return nil
		}
		now, err = r.writeNode(ctx, "exclude requests of node "+n.Name, now, now.Node)
		return err
	})
	return now, claimed, err
}

// Owned reads the node and all blocks in its list as of one revision of the node.
func (r Blocks) Owned(ctx context.Context, name string) (n Node, blocks []Block, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		if n, err = r.node(ctx, name); err != nil {
			return err
		}
		blocks, err = r.blocksOf(ctx, n, n.Blocks)
		return err
	})
	return n, blocks, err
}

// block reads a block. ErrNotFound: it is free.
func (r Blocks) block(ctx context.Context, pool string, b netip.Prefix) (Block, error) {
	answers, err := r.read(ctx, "block "+b.String(), clientv3.OpGet(r.keys.Block(pool, b)),
		clientv3.OpGet(r.keys.Cool(pool, b), clientv3.WithCountOnly()))
	if err != nil {
		return Block{}, err
	}
	if len(answers[0].Kvs) == 0 {
		return Block{}, fmt.Errorf("block %s of pool %s: %w", b, pool, ErrNotFound)
	}
	block, err := decodeBlock(answers[0].Kvs[0])
	block.Cool = answers[1].Count > 0
	return block, err
}

// Return gives a block back: it cools down. It succeeds if the block has left the node already.
// ErrFenced, ErrIdentity.
func (r Blocks) Return(
	ctx context.Context, n Node, b Block, reason string,
) (now Node, err error) {
	pool, err := r.pool(ctx, b.Pool)
	if err != nil {
		return n, err
	}
	v := vacancy{pool: pool, leases: newCoolLeases(r.requests), reason: reason}
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.tryReturn(ctx, n, b, v)
		return err
	})
	v.leases.drop(ctx, unknown)
	return now, err
}

func (r Blocks) tryReturn(
	ctx context.Context, n Node, b Block, v vacancy,
) (now Node, err error) {
	now, err = r.node(ctx, n.Name)
	if err != nil {
		return now, err
	}
	here := func(ref cluster.BlockRef) bool {
		return ref.Pool == b.Pool && ref.Block == b.Block.Block && ref.Nonce == b.Nonce
	}
	if !slices.ContainsFunc(now.Blocks, here) {
		return now, nil
	}
	if err := now.still(n.Node); err != nil && !errors.Is(err, ErrSuspect) {
		return now, err
	}
	present, err := r.block(ctx, b.Pool, b.Block.Block)
	switch {
	case errors.Is(err, ErrNotFound):
		return now, errAgain
	case err != nil:
		return now, err
	case present.Generation != b.Generation:
		return now, nil // another incarnation of the block
	}
	lease, err := v.leases.of(ctx, v.pool)
	if err != nil {
		return now, err
	}
	var c change
	next := withoutRefs(now.Node, here)
	c.same(r.keys.Node(n.Name), now.Revision)
	c.put(r.keys.Node(n.Name), next)
	r.cool(&c, present, lease, v.reason)
	revision, err := v.leases.write(ctx, "return "+b.Block.Block.String(), c)
	if err != nil {
		return now, err
	}
	return Node{Node: next, Revision: revision, Live: now.Live}, nil
}

// cool adds to a transaction that a block cools down.
func (r *requests) cool(c *change, b Block, lease clientv3.LeaseID, reason string) {
	key := r.keys.Block(b.Pool, b.Block.Block)
	next := b.Block
	next.State, next.Owner, next.Epoch, next.Grants = cluster.BlockCooling, "", 0, nil
	next.Since = r.o.Now()
	c.same(key, b.Revision)
	c.put(key, next)
	c.then = append(c.then, clientv3.OpPut(r.keys.Cool(b.Pool, b.Block.Block), reason,
		clientv3.WithLease(lease)))
}

// Expire frees at most count blocks of a pool that have cooled down. It returns their number.
func (r Blocks) Expire(ctx context.Context, pool string, count int) (int, error) {
	freed, err := r.expire(ctx, pool, count)
	return len(freed), err
}

func (r Blocks) expire(
	ctx context.Context, pool string, count int,
) (freed []netip.Prefix, err error) {
	cooled, err := r.cooled(ctx, pool, count)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(cooled, maxBlocks) {
		o, err := r.commit(ctx, "free blocks of pool "+pool, r.expireAll(part))
		if err != nil {
			return freed, err
		}
		if o.held {
			for _, b := range part {
				freed = append(freed, b.Block.Block)
			}
			continue
		}
		for _, b := range part { // one of them has changed
			o, err := r.commit(ctx, "free block "+b.Block.Block.String(), r.expireAll([]Block{b}))
			if err != nil {
				return freed, err
			}
			if o.held {
				freed = append(freed, b.Block.Block)
			}
		}
	}
	return freed, nil
}

func (r Blocks) expireAll(blocks []Block) (c change) {
	for _, b := range blocks {
		key := r.keys.Block(b.Pool, b.Block.Block)
		c.same(key, b.Revision)
		c.absent(r.keys.Cool(b.Pool, b.Block.Block))
		c.then = append(c.then, clientv3.OpDelete(key))
	}
	return c
}

// cooled returns at most count cooling blocks without cool key.
func (r Blocks) cooled(ctx context.Context, pool string, count int) (found []Block, err error) {
	cools, _, err := r.list(ctx, r.keys.Cools(pool), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	cooling := map[netip.Prefix]bool{}
	for _, kv := range cools {
		b, err := cluster.ParseBlock(string(kv.Key))
		if err != nil {
			return nil, err
		}
		cooling[b] = true
	}
	// A block that began to cool after the first list is refused by the transaction.
	var wrong error
	_, err = r.pages(ctx, r.keys.Blocks(pool), 0, func(page []*mvccpb.KeyValue) bool {
		for _, kv := range page {
			b, err := decodeBlock(kv)
			if err != nil {
				wrong = err
				return false
			}
			if b.State == cluster.BlockCooling && !cooling[b.Block.Block] && len(found) < count {
				found = append(found, b)
			}
		}
		return len(found) < count
	})
	return found, errors.Join(err, wrong)
}
