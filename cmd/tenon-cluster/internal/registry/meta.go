package registry

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func (r *requests) meta(nonce string) cluster.Meta {
	return cluster.Meta{Schema: cluster.Schema, Nonce: nonce}
}

// Init creates the cluster and returns its meta document; it returns the present one if it
// exists.
func (r Meta) Init(ctx context.Context) (meta cluster.Meta, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		meta, err = r.writeMeta(ctx)
		return err
	})
	return meta, err
}

// NewNonce gives the store another nonce, after an operator has restored it from a snapshot.
// Nodes then confirm their blocks before they change the store again.
func (r Meta) NewNonce(ctx context.Context) (meta cluster.Meta, err error) {
	meta, _, err = r.Trust(ctx)
	if err != nil {
		return meta, err
	}
	doubt := cluster.Doubt{Cause: "the store was restored", Author: "an operator"}
	meta, changed, err := r.Distrust(ctx, meta.Nonce, meta.Nonce, doubt)
	if err == nil && !changed {
		err = fmt.Errorf("write meta: %w", ErrConflict)
	}
	return meta, err
}

// Distrust records why the store cannot be trusted, and gives it another nonce. Requests of all
// registries that are bound to the nonce present then fail with ErrForeign. The new nonce is later
// than present and than trusted, the one that the caller's node has trusted. changed is false if the
// store no longer has the nonce present: another node was faster. Meta is the one in the store.
func (r Meta) Distrust(
	ctx context.Context, present, trusted string, d cluster.Doubt,
) (meta cluster.Meta, changed bool, err error) {
	d.Schema, d.Since = cluster.Schema, r.o.Now()
	next := r.meta(cluster.NextNonce(r.o.Nonce(), present, trusted))
	c := change{
		compares:  []clientv3.Cmp{r.hasNonce(present)},
		otherwise: []clientv3.Op{clientv3.OpGet(r.keys.Meta())},
	}
	c.put(r.keys.Meta(), next)
	c.put(r.keys.Doubt(), d)
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		o, err := r.commit(ctx, "distrust the store", c)
		if err != nil || o.held {
			meta, changed = next, o.held
			return err
		}
		if meta, err = metaOf(o.answers[0]); err == nil {
			changed = meta.Nonce == next.Nonce // an earlier try has committed
		}
		return err
	})
	return meta, changed, err
}

// EndDoubt removes the doubt about the store with this nonce, and the question to the nodes with its
// answers, when an operator has confirmed all nodes. ErrConflict: the store has another nonce.
func (r Meta) EndDoubt(ctx context.Context, nonce string) error {
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		o, err := r.commit(ctx, "end the doubt about the store", change{
			compares: []clientv3.Cmp{r.hasNonce(nonce)},
			then: []clientv3.Op{
				clientv3.OpDelete(r.keys.Doubt()), clientv3.OpDelete(r.keys.Question()),
				clientv3.OpDelete(r.keys.Answers(), clientv3.WithPrefix()),
			},
		})
		if err == nil && !o.held {
			err = fmt.Errorf("the store was restored again: %w", ErrConflict)
		}
		return err
	})
	return err
}

// hasNonce compares the nonce of the store.
func (r *requests) hasNonce(nonce string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(r.keys.Meta()), "=", encode(r.meta(nonce)))
}

// writeMeta creates the meta document with a new nonce, or returns the present one.
func (r Meta) writeMeta(ctx context.Context) (meta cluster.Meta, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	key := r.keys.Meta()
	meta = r.meta(r.o.Nonce())
	answer, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, encode(meta))).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil && definite(err):
		return meta, fmt.Errorf("write meta: %w", err)
	case err != nil:
		return meta, fmt.Errorf("write meta: %w: %w", ErrUnknown, err)
	case answer.Succeeded:
		return meta, nil
	}
	return metaOf(answer.Responses[0].GetResponseRange())
}

func metaOf(answer *pb.RangeResponse) (cluster.Meta, error) {
	kv := answer.Kvs[0]
	return cluster.Decode[cluster.Meta](string(kv.Key), kv.Value)
}

// Read reads the meta document with a linearizable read. ErrNotFound: the cluster has no Init.
func (r Meta) Read(ctx context.Context) (cluster.Meta, error) {
	meta, _, err := r.Trust(ctx)
	return meta, err
}

// Trust reads the meta document and the doubt about the store, nil if there is none, with one
// linearizable read. ErrNotFound: the cluster has no Init.
func (r Meta) Trust(ctx context.Context) (meta cluster.Meta, doubt *cluster.Doubt, err error) {
	answers, err := r.read(ctx, "meta", clientv3.OpGet(r.keys.Meta()), clientv3.OpGet(r.keys.Doubt()))
	if err != nil {
		return meta, nil, err
	}
	if err := r.absentMeta(answers[0]); err != nil {
		return meta, nil, err
	}
	if meta, err = metaOf(answers[0]); err != nil {
		return meta, nil, err
	}
	for _, kv := range answers[1].Kvs {
		d, err := cluster.Decode[cluster.Doubt](string(kv.Key), kv.Value)
		if err != nil {
			return meta, nil, err
		}
		doubt = &d
	}
	return meta, doubt, nil
}

func (r *requests) absentMeta(answer *pb.RangeResponse) error {
	if len(answer.Kvs) == 0 {
		return fmt.Errorf("cluster %s is not initialized: %w", r.o.Cluster, ErrNotFound)
	}
	return nil
}

// checkMeta explains why the compare of the meta document may have failed.
func (r *requests) checkMeta(answer *pb.RangeResponse) error {
	if err := r.absentMeta(answer); err != nil {
		return err
	}
	meta, err := metaOf(answer)
	if err == nil && r.o.Store != "" && meta.Nonce != r.o.Store {
		return fmt.Errorf("%w: its nonce is %s, not %s", ErrForeign, meta.Nonce, r.o.Store)
	}
	return err
}
