package load

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/intercept"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// counters count what the clients of all nodes do.
type counters struct {
	transactions, reads, leases, events, messages atomic.Int64
}

// client counts requests and watch events.
type client struct {
	registry.Client
	keys cluster.Keys
	n    *counters
	// blind nodes see none of the others. A view of 5,000 nodes takes 3 MB, so that 5,000 views in
	// one process are too large, and decoding each event in each of them measures nothing but JSON.
	blind bool
}

// hidden reports whether a read or watch is one that a blind node does not make: of the other
// nodes, and of the blocks that cool down. A blind node believes that it is alone and would look
// for those all the time, while 5,000 nodes take turns.
func (c *client) hidden(key string, o clientv3.Op) bool {
	if !c.blind || len(o.RangeBytes()) == 0 {
		return false
	}
	blocks := strings.HasPrefix(key, c.keys.Blocks("")) || strings.HasPrefix(key, c.keys.Cools(""))
	return blocks && !o.IsKeysOnly() || strings.HasPrefix(key, c.keys.Nodes()) ||
		strings.HasPrefix(key, c.keys.Addrs("")) || strings.HasPrefix(key, c.keys.Lives())
}

func (c *client) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	c.n.reads.Add(1)
	if c.hidden(key, clientv3.OpGet(key, opts...)) {
		r, err := c.Client.Get(ctx, c.keys.Meta()) // for the revision
		if err == nil {
			r = &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: r.Header.Revision}}
		}
		return r, err
	}
	return c.Client.Get(ctx, key, opts...)
}

func (c *client) Watch(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) clientv3.WatchChan {
	if c.hidden(key, clientv3.OpGet(key, opts...)) {
		silent := make(chan clientv3.WatchResponse)
		context.AfterFunc(ctx, func() { close(silent) })
		return silent
	}
	counted := make(chan clientv3.WatchResponse)
	go func() {
		defer close(counted)
		for r := range c.Client.Watch(ctx, key, opts...) {
			c.n.messages.Add(1)
			c.n.events.Add(int64(len(r.Events)))
			select {
			case counted <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return counted
}

func (c *client) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	c.n.leases.Add(1)
	return c.Client.Grant(ctx, ttl)
}

func (c *client) KeepAliveOnce(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	c.n.leases.Add(1)
	return c.Client.KeepAliveOnce(ctx, id)
}

// Txn counts a transaction when it is sent. One without writes counts as a read.
func (c *client) Txn(ctx context.Context) clientv3.Txn {
	t := &intercept.Txn{Txn: c.Client.Txn(ctx)}
	t.Send = func(send intercept.Send) (*clientv3.TxnResponse, error) {
		if slices.ContainsFunc(t.Kept, func(op clientv3.Op) bool { return !op.IsGet() }) {
			c.n.transactions.Add(1)
		} else {
			c.n.reads.Add(1)
		}
		return send()
	}
	return t
}
