package registry

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// defaultRequestTime limits a request without Options.Timeout.
const defaultRequestTime = 5 * time.Second

// Lives reads which nodes have a leased key, with a linearizable read of the keys alone. A node
// without one is not proven dead: see [Registry.Suspect].
func (r *Registry) Lives(ctx context.Context) (map[string]bool, error) {
	limit := r.o.Timeout
	if limit <= 0 {
		limit = defaultRequestTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := r.client.Get(ctx, r.keys.Lives(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	live := make(map[string]bool, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		live[cluster.Last(string(kv.Key))] = true
	}
	return live, nil
}

// Bound returns a registry whose writes fail with ErrForeign after the nonce of the store has
// changed; see Options.Store.
func (r *Registry) Bound(nonce string) *Registry {
	bound := *r
	bound.o.Store = nonce
	return &bound
}
