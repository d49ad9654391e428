// Package intercept passes the requests of a client of etcd through a function of a test.
package intercept

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
)

// Client passes the requests that package registry makes through Around. A watch is no request, and
// a transaction is one when it commits.
type Client struct {
	registry.Client
	Around func(send func() error) error
}

func around[T any](c *Client, send func() (T, error)) (answer T, err error) {
	err = c.Around(func() (err error) {
		answer, err = send()
		return err
	})
	return answer, err
}

// Get implements [clientv3.KV].
func (c *Client) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	return around(c, func() (*clientv3.GetResponse, error) { return c.Client.Get(ctx, key, opts...) })
}

// Grant implements [clientv3.Lease].
func (c *Client) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return around(c, func() (*clientv3.LeaseGrantResponse, error) { return c.Client.Grant(ctx, ttl) })
}

// Revoke implements [clientv3.Lease].
func (c *Client) Revoke(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseRevokeResponse, error) {
	return around(c, func() (*clientv3.LeaseRevokeResponse, error) { return c.Client.Revoke(ctx, id) })
}

// KeepAliveOnce implements [clientv3.Lease].
func (c *Client) KeepAliveOnce(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	return around(c, func() (*clientv3.LeaseKeepAliveResponse, error) {
		return c.Client.KeepAliveOnce(ctx, id)
	})
}

// Txn implements [clientv3.KV].
func (c *Client) Txn(ctx context.Context) clientv3.Txn {
	t := &Txn{Txn: c.Client.Txn(ctx)}
	t.Send = func(send Send) (*clientv3.TxnResponse, error) { return around(c, send) }
	return t
}

// Send sends a transaction.
type Send func() (*clientv3.TxnResponse, error)

// Txn is a transaction that Send commits.
type Txn struct {
	clientv3.Txn
	Send            func(send Send) (*clientv3.TxnResponse, error)
	Kept, Otherwise []clientv3.Op // the operations if the compares hold, and if one does not
}

// If implements [clientv3.Txn].
func (t *Txn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cs...)
	return t
}

// Then implements [clientv3.Txn].
func (t *Txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.Kept = t.Txn.Then(ops...), append(t.Kept, ops...)
	return t
}

// Else implements [clientv3.Txn].
func (t *Txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.Otherwise = t.Txn.Else(ops...), append(t.Otherwise, ops...)
	return t
}

// Commit implements [clientv3.Txn].
func (t *Txn) Commit() (*clientv3.TxnResponse, error) { return t.Send(t.Txn.Commit) }
