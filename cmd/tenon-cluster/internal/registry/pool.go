package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Put creates a pool, or changes one without changing its range, block size or prefix length.
// ErrRefused: it changes one of these, or overlaps another pool. Other changes apply to addresses
// that are allocated afterwards.
func (r Pools) Put(ctx context.Context, p cluster.Pool) (pool Pool, err error) {
	if err := p.Canonicalize(); err != nil {
		return pool, err
	}
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		pool, err = r.put(ctx, p)
		return err
	})
	return pool, err
}

func (r Pools) put(ctx context.Context, p cluster.Pool) (Pool, error) {
	pools, revision, err := r.pools(ctx)
	if err != nil {
		return Pool{}, err
	}
	at := slices.IndexFunc(pools, func(o Pool) bool { return o.Name == p.Name })
	if at >= 0 && encode(pools[at].Pool) == encode(p) {
		return pools[at], nil
	}
	if err := fits(p, pools); err != nil {
		return Pool{}, err
	}
	var c change
	// No pool has been created or changed since the list: two overlapping pools cannot both commit.
	c.compares = append(c.compares, clientv3.Compare(
		clientv3.ModRevision(r.keys.Pools()).WithPrefix(), "<", revision+1))
	if at >= 0 {
		c.same(r.keys.Pool(p.Name), pools[at].Revision)
	}
	c.put(r.keys.Pool(p.Name), p)
	written, err := r.write(ctx, "write pool "+p.Name, c)
	if err != nil {
		return Pool{}, err
	}
	return Pool{p, written}, nil
}

// fits checks a pool against the present pools.
func fits(p cluster.Pool, pools []Pool) error {
	for _, o := range pools {
		switch {
		case o.Name != p.Name && o.Range.Overlaps(p.Range):
			return fmt.Errorf("pool %s: %w: range %s overlaps pool %s (%s)", p.Name, ErrRefused,
				p.Range, o.Name, o.Range)
		case o.Name != p.Name:
		case o.Range != p.Range:
			return fmt.Errorf("pool %s: %w: the range %s cannot change; add a pool for %s", p.Name,
				ErrRefused, o.Range, p.Range)
		case o.BlockBits != p.BlockBits || o.PrefixBits != p.PrefixBits:
			return fmt.Errorf("pool %s: %w: blockBits %d and prefixBits %d cannot change", p.Name,
				ErrRefused, o.BlockBits, o.PrefixBits)
		}
	}
	return nil
}

// Delete deletes a pool that has no block. ErrInUse otherwise. It frees blocks that have
// cooled down first.
func (r Pools) Delete(ctx context.Context, name string) error {
	if _, err := Blocks(r).Expire(ctx, name, math.MaxInt); err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		pool, err := r.pool(ctx, name)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var c change
		c.same(r.keys.Pool(name), pool.Revision)
		c.compares = append(c.compares, clientv3.Compare(
			clientv3.CreateRevision(r.keys.Blocks(name)).WithPrefix(), "=", 0))
		c.then = append(c.then, clientv3.OpDelete(r.keys.Pool(name)))
		for _, prefix := range []string{
			r.keys.Quotas(name, ""), r.keys.Stickies(name), r.keys.Cools(name),
		} {
			c.then = append(c.then, clientv3.OpDelete(prefix, clientv3.WithPrefix()))
		}
		c.otherwise = append(c.otherwise, clientv3.OpGet(r.keys.Blocks(name), clientv3.WithPrefix(),
			clientv3.WithCountOnly()))
		o, err := r.commit(ctx, "delete pool "+name, c)
		switch {
		case err != nil || o.held:
			return err
		case o.answers[0].Count > 0:
			return fmt.Errorf("pool %s has %d blocks: %w", name, o.answers[0].Count, ErrInUse)
		}
		return errAgain
	})
	return err
}

// Read reads a pool. ErrNotFound.
func (r Pools) Read(ctx context.Context, name string) (Pool, error) { return r.pool(ctx, name) }

func (r *requests) pool(ctx context.Context, name string) (Pool, error) {
	answers, err := r.read(ctx, "pool "+name, clientv3.OpGet(r.keys.Pool(name)))
	if err != nil {
		return Pool{}, err
	}
	return poolOf(name, answers[0])
}

// List reads all pools, sorted by name.
func (r Pools) List(ctx context.Context) ([]Pool, error) {
	pools, _, err := r.pools(ctx)
	return pools, err
}

func (r Pools) pools(ctx context.Context) (pools []Pool, revision int64, err error) {
	kvs, revision, err := r.list(ctx, r.keys.Pools())
	if err != nil {
		return nil, 0, err
	}
	for _, kv := range kvs {
		p, err := decodePool(kv)
		if err != nil {
			return nil, 0, err
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	return pools, revision, nil
}

func decodePool(kv *mvccpb.KeyValue) (Pool, error) {
	p, err := cluster.Decode[cluster.Pool](string(kv.Key), kv.Value)
	return Pool{p, kv.ModRevision}, err
}

// poolOf returns the pool of an answer.
func poolOf(name string, answer *pb.RangeResponse) (Pool, error) {
	if len(answer.Kvs) == 0 {
		return Pool{}, fmt.Errorf("pool %s: %w", name, ErrNotFound)
	}
	return decodePool(answer.Kvs[0])
}
