package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// AddAudit stores a batch of audit events of a node, compressed, for as long as keep. Storing the
// same batch again succeeds. ErrConflict: another batch has the sequence number.
func (r *Registry) AddAudit(
	ctx context.Context, day, node string, sequence uint64, events []byte, keep time.Duration,
) error {
	packed, err := pack(events)
	if err != nil {
		return err
	}
	lease, err := r.lease(ctx, keep)
	if err != nil {
		return err
	}
	key, used := r.keys.Audit(day, node, sequence), false
	unknown, err := r.repeat(ctx, func(ctx context.Context) error {
		var c change
		c.absent(key)
		c.then = append(c.then, clientv3.OpPut(key, packed, clientv3.WithLease(lease)))
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
		if string(kv.Value) != packed {
			return fmt.Errorf("audit batch %d of node %s on %s: %w", sequence, node, day, ErrConflict)
		}
		return nil
	})
	if !used && !unknown {
		r.revoke(ctx, lease)
	}
	return err
}

// Audit reads and unpacks the batches of a day, in the order of nodes and sequence numbers.
func (r *Registry) Audit(ctx context.Context, day string) (batches [][]byte, err error) {
	kvs, _, err := r.list(ctx, r.keys.Audits(day))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		events, err := unpack(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", kv.Key, err)
		}
		batches = append(batches, events)
	}
	return batches, nil
}

// pack compresses events. The same events give the same bytes.
func pack(events []byte) (string, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(events)
	if err == nil {
		err = w.Close()
	}
	return packed.String(), err
}

// maxAudit is the largest batch in bytes before compression.
const maxAudit = 16 << 20

// unpack is the inverse of pack.
func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	events, err := io.ReadAll(io.LimitReader(r, maxAudit+1))
	if err == nil && len(events) > maxAudit {
		err = fmt.Errorf("the batch has more than %d bytes", maxAudit)
	}
	return events, err
}
