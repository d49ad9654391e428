package registry

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// AddAudit stores a compressed batch of audit events of a node that ends after keep. Storing the
// same batch again succeeds. ErrConflict: another batch has the sequence number.
func (r *Registry) AddAudit(ctx context.Context, day, node string, sequence uint64, events []byte, keep time.Duration) error {
	lease, err := r.lease(ctx, keep)
	if err != nil {
		return err
	}
	key, used := r.keys.Audit(day, node, sequence), false
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		var c change
		c.absent(key)
		c.then = append(c.then, clientv3.OpPut(key, string(events), clientv3.WithLease(lease)))
		c.otherwise = append(c.otherwise, clientv3.OpGet(key))
		o, err := r.commit(ctx, "store audit events", c)
		switch {
		case err != nil:
			return err
		case o.held:
			used = true
			return nil
		case len(o.answers[0].Kvs) == 0:
			return errAgain
		}
		kv := o.answers[0].Kvs[0]
		used = kv.Lease == int64(lease)
		if string(kv.Value) != string(events) {
			return fmt.Errorf("audit batch %d of node %s on %s: %w", sequence, node, day, ErrConflict)
		}
		return nil
	})
	if !used && !unknown {
		r.revoke(ctx, lease)
	}
	return err
}

// Audit reads the batches of a day, in the order of nodes and sequence numbers.
func (r *Registry) Audit(ctx context.Context, day string) (batches [][]byte, err error) {
	kvs, _, err := r.list(ctx, r.keys.Audits(day))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		batches = append(batches, kv.Value)
	}
	return batches, nil
}
