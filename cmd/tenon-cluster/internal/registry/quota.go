package registry

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Draw gives a node more tokens of a namespace's quota, at most count, and returns all tokens
// that the node has then. After an unknown outcome a repeated call may draw twice; the returned
// number is right, and Yield gives the excess back. ErrQuota: none is left; ErrNotFound:
// the pool does not limit the namespace.
func (r Quotas) Draw(
	ctx context.Context, n Node, p Pool, namespace string, count uint64,
) (tokens cluster.Tokens, err error) {
	before := int64(-1) // mod revision of the node's tokens before the call
	err = r.gain(ctx, n.Name, func(ctx context.Context) error {
		own, total, revision, err := r.tokens(ctx, p.Name, namespace, n.Name)
		if err != nil {
			return err
		}
		if before >= 0 && own.revision != before { // an earlier try has committed
			tokens = own.Tokens
			return nil
		}
		before = own.revision
		answers, err := r.read(ctx, "node "+n.Name,
			append(r.readNode(n.Name), clientv3.OpGet(r.keys.Pool(p.Name)))...)
		if err != nil {
			return err
		}
		now, err := nodeOf(n.Name, answers)
		if err == nil {
			err = r.mayGain(now, n)
		}
		if err != nil {
			return err
		}
		pool, err := poolOf(p.Name, answers[2])
		if err != nil {
			return err
		}
		limit := pool.LimitOf(namespace)
		switch {
		case limit == 0:
			return fmt.Errorf("pool %s does not limit namespace %s: %w", p.Name, namespace, ErrNotFound)
		case total >= limit:
			return fmt.Errorf("namespace %s has %d addresses of pool %s, its limit is %d: %w",
				namespace, total, p.Name, limit, ErrQuota)
		}
		tokens = cluster.Tokens{
			Schema: cluster.Schema, Namespace: namespace, Node: n.Name, Epoch: now.Epoch,
			Count: own.Count + min(count, limit-total),
		}
		var c change
		c.same(r.keys.Node(n.Name), now.Revision)
		c.same(r.keys.Pool(p.Name), pool.Revision)
		c.same(r.keys.Quota(p.Name, namespace, n.Name), own.revision)
		// No node has drawn tokens since the list. Deleted ones only lower the total.
		c.compares = append(c.compares, clientv3.Compare(
			clientv3.ModRevision(r.keys.Quotas(p.Name, namespace)).WithPrefix(), "<", revision+1))
		c.put(r.keys.Quota(p.Name, namespace, n.Name), tokens)
		_, err = r.write(ctx, "draw tokens of namespace "+namespace, c)
		return err
	})
	return tokens, err
}

// ownTokens are the tokens of a node with their mod revision, 0 if it has none.
type ownTokens struct {
	cluster.Tokens
	revision int64
}

// tokens reads the tokens of a node and the total of a namespace at a revision.
func (r Quotas) tokens(
	ctx context.Context, pool, namespace, node string,
) (own ownTokens, total uint64, revision int64, err error) {
	kvs, revision, err := r.list(ctx, r.keys.Quotas(pool, namespace))
	if err != nil {
		return own, 0, 0, err
	}
	for _, kv := range kvs {
		t, err := cluster.Decode[cluster.Tokens](string(kv.Key), kv.Value)
		if err != nil {
			return own, 0, 0, err
		}
		if t.Namespace != namespace { // an empty one selects the keys of all
			continue
		}
		total += t.Count
		if t.Node == node {
			own = ownTokens{t, kv.ModRevision}
		}
	}
	return own, total, revision, nil
}

// Yield lowers the tokens of a node to count. It does nothing if the node has fewer.
func (r Quotas) Yield(ctx context.Context, n Node, pool, namespace string, count uint64) error {
	key := r.keys.Quota(pool, namespace, n.Name)
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		answers, err := r.read(ctx, "tokens of node "+n.Name, clientv3.OpGet(key))
		if err != nil || len(answers[0].Kvs) == 0 {
			return err
		}
		kv := answers[0].Kvs[0]
		tokens, err := cluster.Decode[cluster.Tokens](key, kv.Value)
		if err != nil || tokens.Epoch != n.Epoch || tokens.Count <= count {
			return err
		}
		var c change
		c.same(key, kv.ModRevision)
		if tokens.Count = count; count == 0 {
			c.then = append(c.then, clientv3.OpDelete(key))
		} else {
			c.put(key, tokens)
		}
		_, err = r.write(ctx, "give back tokens of namespace "+namespace, c)
		return err
	})
	return err
}

// Drawn reads the tokens that a node has, by pool and namespace.
func (r Quotas) Drawn(ctx context.Context, node string) (map[string]map[string]uint64, error) {
	drawn := map[string]map[string]uint64{}
	kvs, _, err := r.list(ctx, r.keys.Quotas("", ""))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		t, pool, err := r.decodeTokens(kv)
		if err != nil {
			return nil, err
		}
		if t.Node != node {
			continue
		}
		if drawn[pool] == nil {
			drawn[pool] = map[string]uint64{}
		}
		drawn[pool][t.Namespace] = t.Count
	}
	return drawn, nil
}

// decodeTokens returns the tokens and the pool of their key.
func (r *requests) decodeTokens(kv *mvccpb.KeyValue) (t cluster.Tokens, pool string, err error) {
	key := string(kv.Key)
	t, err = cluster.Decode[cluster.Tokens](key, kv.Value)
	return t, poolOfKey(key, r.keys.Quotas("", "")), err
}

// poolOfKey returns the pool that a key names after the prefix of all pools.
func poolOfKey(key, prefix string) string {
	pool, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	return cluster.Last(pool)
}
