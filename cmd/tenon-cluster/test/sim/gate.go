package sim

import (
	"context"
	"errors"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
)

var errDead = errors.New("the process has been killed")

// gate is the client of one run of an agent. After the agent was killed, it sends nothing.
type gate struct {
	registry.Client
	dead atomic.Bool
}

func (g *gate) check() error {
	if g.dead.Load() {
		return errDead
	}
	return nil
}

func (g *gate) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Client.Get(ctx, key, opts...)
}

func (g *gate) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Client.Grant(ctx, ttl)
}

func (g *gate) Revoke(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseRevokeResponse, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Client.Revoke(ctx, id)
}

func (g *gate) KeepAliveOnce(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Client.KeepAliveOnce(ctx, id)
}

func (g *gate) Txn(ctx context.Context) clientv3.Txn { return &txn{g.Client.Txn(ctx), g} }

type txn struct {
	clientv3.Txn
	g *gate
}

func (t *txn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cs...)
	return t
}

func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.g.check(); err != nil {
		return nil, err
	}
	return t.Txn.Commit()
}
