package registry

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func (r *Registry) meta(nonce string) cluster.Meta {
	return cluster.Meta{Schema: cluster.Schema, Nonce: nonce}
}

// Init creates the cluster and returns its meta document; it returns the present one if it
// exists.
func (r *Registry) Init(ctx context.Context) (meta cluster.Meta, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		meta, err = r.writeMeta(ctx, 0)
		return err
	})
	return meta, err
}

// NewNonce gives the store another nonce, after an operator has restored it from a snapshot.
// Nodes then confirm their blocks before they change the store again.
func (r *Registry) NewNonce(ctx context.Context) (meta cluster.Meta, err error) {
	answers, err := r.read(ctx, "meta", clientv3.OpGet(r.keys.Meta()))
	if err != nil {
		return meta, err
	}
	if err := r.absentMeta(answers[0]); err != nil {
		return meta, err
	}
	return r.writeMeta(ctx, answers[0].Kvs[0].ModRevision)
}

// writeMeta writes a meta document with a new nonce if the present one has a revision. It returns
// the present document if a new cluster is requested and the cluster exists.
func (r *Registry) writeMeta(ctx context.Context, revision int64) (meta cluster.Meta, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	key := r.keys.Meta()
	meta = r.meta(r.o.Nonce())
	answer, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, encode(meta))).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil && definite(err):
		return meta, fmt.Errorf("write meta: %w", err)
	case err != nil:
		return meta, fmt.Errorf("write meta: %w: %w", ErrUnknown, err)
	case answer.Succeeded:
		return meta, nil
	case revision != 0:
		return meta, fmt.Errorf("write meta: %w", ErrConflict)
	}
	kv := answer.Responses[0].GetResponseRange().Kvs[0]
	return cluster.Decode[cluster.Meta](string(kv.Key), kv.Value)
}

// Meta reads the meta document with a linearizable read. ErrNotFound: the cluster has no Init.
func (r *Registry) Meta(ctx context.Context) (meta cluster.Meta, err error) {
	answers, err := r.read(ctx, "meta", clientv3.OpGet(r.keys.Meta()))
	if err != nil {
		return meta, err
	}
	if err := r.absentMeta(answers[0]); err != nil {
		return meta, err
	}
	kv := answers[0].Kvs[0]
	return cluster.Decode[cluster.Meta](string(kv.Key), kv.Value)
}

func (r *Registry) absentMeta(answer *pb.RangeResponse) error {
	if len(answer.Kvs) == 0 {
		return fmt.Errorf("cluster %s is not initialized: %w", r.o.Cluster, ErrNotFound)
	}
	return nil
}

// checkMeta explains why the compare of the meta document may have failed.
func (r *Registry) checkMeta(answer *pb.RangeResponse) error {
	if err := r.absentMeta(answer); err != nil {
		return err
	}
	kv := answer.Kvs[0]
	meta, err := cluster.Decode[cluster.Meta](string(kv.Key), kv.Value)
	if err == nil && r.o.Store != "" && meta.Nonce != r.o.Store {
		return fmt.Errorf("%w: its nonce is %s, not %s", ErrForeign, meta.Nonce, r.o.Store)
	}
	return err
}
