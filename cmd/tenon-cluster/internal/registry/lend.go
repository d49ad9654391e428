package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Want asks the owners of a pool's blocks for an address until the session's lease ends. The
// nonce becomes the nonce of the grant.
func (r *Registry) Want(ctx context.Context, s Session, pool, nonce string) error {
	return r.gain(ctx, s.Node.Name, func(ctx context.Context) error {
		now, err := r.Node(ctx, s.Node.Name)
		if err != nil {
			return err
		}
		if err := now.mayGain(s.Node.Node); err != nil {
			return err
		}
		if len(claimedWith(now.Node, nonce)) > 0 { // granted already
			return nil
		}
		var c change
		c.same(r.keys.Node(now.Name), now.Revision)
		c.then = append(c.then, clientv3.OpPut(r.keys.Want(pool, now.Name), nonce,
			clientv3.WithLease(s.Lease)))
		_, err = r.write(ctx, "ask for an address of pool "+pool, c)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", ErrLease, err)
		}
		return err
	})
}

// Unwant withdraws the request of a node.
func (r *Registry) Unwant(ctx context.Context, node, pool string) error {
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		_, err := r.write(ctx, "withdraw the request for an address of pool "+pool, change{
			then: []clientv3.Op{clientv3.OpDelete(r.keys.Want(pool, node))}})
		return err
	})
	return err
}

// Wants reads the requests to borrow addresses of a pool: borrower and nonce.
func (r *Registry) Wants(ctx context.Context, pool string) (map[string]string, error) {
	kvs, _, err := r.list(ctx, r.keys.Wants(pool))
	if err != nil {
		return nil, err
	}
	wants := map[string]string{}
	for _, kv := range kvs {
		wants[cluster.Last(string(kv.Key))] = string(kv.Value)
	}
	return wants, nil
}

// WatchWants calls wanted for each existing and each new request to borrow an address, until ctx
// ends. It calls failed with an error when it cannot watch the store, and with nil when it can
// again.
func (r *Registry) WatchWants(
	ctx context.Context, wanted func(pool, borrower string), failed func(error),
) {
	prefix := r.keys.Wants("")
	for ctx.Err() == nil {
		kvs, revision, err := r.list(ctx, prefix, clientv3.WithKeysOnly())
		if err == nil {
			failed(nil)
			for _, kv := range kvs {
				wanted(r.wantOf(kv))
			}
			err = r.followWants(ctx, revision, wanted)
		}
		if ctx.Err() == nil {
			failed(err)
			wait(ctx, minResync/2+rand.N(minResync))
		}
	}
}

// followWants watches the requests after a revision. It returns when the watch has ended.
func (r *Registry) followWants(
	ctx context.Context, revision int64, wanted func(pool, borrower string),
) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range r.client.Watch(ctx, r.keys.Wants(""), clientv3.WithPrefix(),
		clientv3.WithRev(revision+1), clientv3.WithFilterDelete()) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch requests to borrow: %w", err)
		}
		for _, e := range response.Events {
			if e.Type != clientv3.EventTypeDelete {
				wanted(r.wantOf(e.Kv))
			}
		}
	}
	return nil
}

// wantOf returns the pool and the node that the key of a request names.
func (r *Registry) wantOf(kv *mvccpb.KeyValue) (pool, borrower string) {
	key := string(kv.Key)
	return poolOfKey(key, r.keys.Wants("")), cluster.Last(key)
}

// Grant lends an address of an owned block to a borrower that wants one. The caller has withdrawn
// the address from its free addresses. It succeeds if the borrower has it already. ErrNotFound:
// the borrower wants none any more; ErrConflict: the block is no longer the node's; ErrRefused:
// the pool does not permit it. After an error other than ErrUnknown nothing is granted later.
func (r *Registry) Grant(
	ctx context.Context, n Node, b Block, a netip.Addr, borrower string,
) (now Block, err error) {
	err = r.gain(ctx, n.Name, func(ctx context.Context) error {
		l := loan{r: r, lender: n, block: b, addr: a}
		if now, err = l.load(ctx, borrower); err != nil || l.done {
			return err
		}
		now, err = l.commit(ctx)
		return err
	})
	return now, err
}

// loan is the state of a try of Grant.
type loan struct {
	r        *Registry
	lender   Node
	borrower Node
	pool     Pool
	block    Block
	addr     netip.Addr
	nonce    string
	wanted   int64 // mod revision of the request
	done     bool  // the address is lent already
}

// load reads and checks the documents.
func (l *loan) load(ctx context.Context, borrower string) (Block, error) {
	r, known := l.r, l.lender
	ops := slices.Concat(r.readNode(known.Name), r.readNode(borrower), []clientv3.Op{
		clientv3.OpGet(r.keys.Pool(l.block.Pool)),
		clientv3.OpGet(r.keys.Block(l.block.Pool, l.block.Block.Block)),
		clientv3.OpGet(r.keys.Want(l.block.Pool, borrower)),
	})
	answers, err := r.read(ctx, "loan of "+l.addr.String(), ops...)
	if err != nil {
		return l.block, err
	}
	if l.lender, err = nodeOf(known.Name, answers); err == nil {
		err = l.lender.still(known.Node)
	}
	if err == nil {
		l.pool, err = poolOf(l.block.Pool, answers[4])
	}
	if err != nil {
		return l.block, err
	}
	if len(answers[5].Kvs) == 0 || answers[5].Kvs[0].CreateRevision != l.block.Generation {
		return l.block, fmt.Errorf("lend %s: node %s does not own its block: %w", l.addr, known.Name,
			ErrConflict)
	}
	if l.block, err = decodeBlock(answers[5].Kvs[0]); err != nil {
		return l.block, err
	}
	if grant, ok := l.block.Grants[l.addr]; ok {
		l.done = grant.Borrower == borrower
		if !l.done {
			err = fmt.Errorf("lend %s: node %s has it: %w", l.addr, grant.Borrower, ErrInUse)
		}
		return l.block, err
	}
	if len(answers[6].Kvs) == 0 {
		return l.block, fmt.Errorf("lend %s: node %s wants no address: %w", l.addr, borrower, ErrNotFound)
	}
	l.nonce, l.wanted = string(answers[6].Kvs[0].Value), answers[6].Kvs[0].ModRevision
	if l.borrower, err = nodeOf(borrower, answers[2:]); err == nil {
		err = l.borrower.mayGain(l.borrower.Node)
	}
	if err == nil {
		err = l.permitted()
	}
	return l.block, err
}

func (l *loan) permitted() error {
	block, _ := l.pool.BlockOf(l.addr)
	switch {
	case l.block.Owner != l.lender.Name || l.block.Epoch != l.lender.Epoch:
		return fmt.Errorf("lend %s: node %s does not own its block: %w", l.addr, l.lender.Name,
			ErrConflict)
	case !l.pool.Borrow || l.pool.PrefixBits > 0:
		return fmt.Errorf("pool %s lends no addresses: %w", l.pool.Name, ErrRefused)
	case block != l.block.Block.Block:
		return fmt.Errorf("%s is not in block %s: %w", l.addr, l.block.Block.Block, ErrRefused)
	}
	if err := l.pool.Allocatable(l.addr); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (l *loan) commit(ctx context.Context) (Block, error) {
	r, pool := l.r, l.pool.Name
	next := l.block
	next.Block = withGrant(next.Block, l.addr, cluster.Grant{
		Borrower: l.borrower.Name, Epoch: l.borrower.Epoch, Nonce: l.nonce,
	})
	var c change
	c.same(r.keys.Node(l.lender.Name), l.lender.Revision)
	c.same(r.keys.Node(l.borrower.Name), l.borrower.Revision)
	c.same(r.keys.Pool(pool), l.pool.Revision)
	c.same(r.keys.Block(pool, next.Block.Block), next.Revision)
	c.same(r.keys.Want(pool, l.borrower.Name), l.wanted)
	c.put(r.keys.Block(pool, next.Block.Block), next.Block)
	c.put(r.keys.Node(l.borrower.Name), with(l.borrower.Node, cluster.BlockRef{
		Pool: pool, Block: alone(l.addr), Nonce: l.nonce,
	}))
	c.then = append(c.then, clientv3.OpDelete(r.keys.Want(pool, l.borrower.Name)))
	revision, err := r.write(ctx, "lend "+l.addr.String(), c)
	if err != nil {
		return l.block, err
	}
	next.Revision = revision
	return next, nil
}

// Repay gives a borrowed address of a block back to its owner. It succeeds if the node has it no
// longer. If the owner was fenced, the block cools down when its last borrowed address is repaid.
func (r *Registry) Repay(ctx context.Context, n Node, b Block, a netip.Addr) (now Node, err error) {
	leases := newCoolLeases(r)
	here := func(ref cluster.BlockRef) bool { return ref.Pool == b.Pool && ref.Block == alone(a) }
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.Node(ctx, n.Name)
		if err != nil || !slices.ContainsFunc(now.Blocks, here) {
			return err
		}
		if err := now.still(n.Node); err != nil && !errors.Is(err, ErrSuspect) {
			return err
		}
		pool, err := r.Pool(ctx, b.Pool)
		if err != nil {
			return err
		}
		s, err := r.slot(ctx, pool, a)
		if err != nil {
			return err
		}
		var c change
		next := withoutRefs(now.Node, here)
		c.same(r.keys.Node(n.Name), now.Revision)
		c.put(r.keys.Node(n.Name), next)
		err = r.drop(ctx, vacancy{pool: pool, slot: s, leases: leases, reason: "repaid"}, a, false, c)
		if err == nil {
			now, err = r.Node(ctx, n.Name)
		}
		return err
	})
	leases.drop(ctx, unknown)
	return now, err
}

// Regain makes a lent address free again after its borrower was fenced and it has cooled down.
// ErrInUse: the address is lent or still cools down. It returns the block as it is then.
func (r *Registry) Regain(
	ctx context.Context, n Node, b Block, a netip.Addr,
) (now Block, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.block(ctx, b.Pool, b.Block.Block)
		if err != nil {
			return err
		}
		grant, ok := now.Grants[a]
		switch {
		case now.Generation != b.Generation || now.Owner != n.Name:
			return fmt.Errorf("regain %s: node %s does not own its block: %w", a, n.Name, ErrConflict)
		case !ok:
			return nil
		case grant.Borrower != "":
			return fmt.Errorf("regain %s: node %s has it: %w", a, grant.Borrower, ErrInUse)
		}
		next := now
		next.Block = withoutGrant(now.Block, a)
		var c change
		key := r.keys.Block(b.Pool, b.Block.Block)
		c.same(key, now.Revision)
		c.put(key, next.Block)
		cool := r.keys.Cool(b.Pool, alone(a))
		c.absent(cool)
		c.otherwise = append(c.otherwise, clientv3.OpGet(cool, clientv3.WithCountOnly()))
		o, err := r.commit(ctx, "regain "+a.String(), c)
		switch {
		case err != nil:
			return err
		case !o.held && o.answers[0].Count > 0:
			return fmt.Errorf("regain %s: it cools down: %w", a, ErrInUse)
		case !o.held:
			return errAgain
		}
		next.Revision = o.revision
		now = next
		return nil
	})
	return now, err
}
