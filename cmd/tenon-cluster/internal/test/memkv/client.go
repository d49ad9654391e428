package memkv

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Call describes a request of a client. A watch is not a call.
type Call struct {
	Client string
	Number int      // of the client's calls, from 1
	Method string   // Range, Put, DeleteRange, Txn, Compact, or a method of clientv3.Lease
	Keys   []string // that the call compares, reads or writes
	Write  bool     // it may change the store
}

// Commit says whether the store executes a call that fails.
type Commit int

// When a call with an error commits.
const (
	Never Commit = iota
	Now          // the answer is lost
	Later        // after Fault.After, or at Store.Deliver if that is zero and no Restore precedes it
)

// Fault is what happens to a call. The zero Fault is none.
type Fault struct {
	Delay  time.Duration // before the store executes the call; the context may end in it
	Slow   time.Duration // before the client goes on with the answer, like a slow disk
	Error  error         // that the client returns
	Commit Commit        // of a call with an error
	After  time.Duration // the delay of Later
}

// Client is a client of a store. It implements KV, Lease and Watcher of clientv3.
type Client struct {
	clientv3.KV
	store *Store
	name  string

	mu    sync.Mutex
	calls int
	fault func(Call) Fault
	heal  chan struct{} // closed when the partition ends; nil without partition
}

// Client returns a new client of the store.
func (s *Store) Client(name string) *Client {
	c := &Client{store: s, name: name}
	c.KV = clientv3.NewKVFromKVClient(&remote{c: c}, nil)
	return c
}

// Fault sets the function that decides about each call; nil ends the faults.
func (c *Client) Fault(decide func(Call) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = decide
}

// Calls returns the number of calls so far.
func (c *Client) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Partition cuts the client off: calls wait until the partition ends, or fail with their context.
func (c *Client) Partition(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cut && c.heal == nil:
		c.heal = make(chan struct{})
	case !cut && c.heal != nil:
		close(c.heal)
		c.heal = nil
	}
}

// connected waits until the client is not partitioned.
func (c *Client) connected(ctx context.Context) error {
	for {
		c.mu.Lock()
		heal := c.heal
		c.mu.Unlock()
		if heal == nil {
			return ctx.Err()
		}
		select {
		case <-heal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Deliver executes the requests that faults have delayed, in their order.
func (s *Store) Deliver() {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, execute := range late {
		execute()
	}
}

// do executes a call with its fault.
func do[T any](
	ctx context.Context, c *Client, call Call, execute func() (T, error),
) (answer T, err error) {
	c.mu.Lock()
	c.calls++
	call.Client, call.Number = c.name, c.calls
	decide := c.fault
	c.mu.Unlock()
	var f Fault
	if decide != nil {
		f = decide(call)
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
		}
	}
	if err := c.connected(ctx); err != nil {
		return answer, clientv3.ContextError(ctx, err)
	}
	if f.Error == nil {
		answer, err = execute()
		<-time.After(f.Slow)
		return answer, clientv3.ContextError(ctx, err)
	}
	switch {
	case f.Commit == Now:
		_, _ = execute()
	case f.Commit == Later && f.After > 0:
		time.AfterFunc(f.After, func() { _, _ = execute() })
	case f.Commit == Later:
		c.store.mu.Lock()
		c.store.late = append(c.store.late, func() { _, _ = execute() })
		c.store.mu.Unlock()
	}
	return answer, f.Error
}

// remote is the client as the KV of clientv3 sees it.
type remote struct {
	pb.KVClient // for the methods of newer versions
	c           *Client
}

// Range implements the KV service.
func (r *remote) Range(
	ctx context.Context, in *pb.RangeRequest, _ ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	call := Call{Method: "Range", Keys: []string{string(in.Key)}}
	return do(ctx, r.c, call, func() (*pb.RangeResponse, error) {
		op, err := r.c.store.one(&pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: in}})
		return op.GetResponseRange(), err
	})
}

// Put implements the KV service.
func (r *remote) Put(
	ctx context.Context, in *pb.PutRequest, _ ...grpc.CallOption,
) (*pb.PutResponse, error) {
	call := Call{Method: "Put", Keys: []string{string(in.Key)}, Write: true}
	return do(ctx, r.c, call, func() (*pb.PutResponse, error) {
		op, err := r.c.store.one(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: in}})
		return op.GetResponsePut(), err
	})
}

// DeleteRange implements the KV service.
func (r *remote) DeleteRange(
	ctx context.Context, in *pb.DeleteRangeRequest, _ ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	call := Call{Method: "DeleteRange", Keys: []string{string(in.Key)}, Write: true}
	return do(ctx, r.c, call, func() (*pb.DeleteRangeResponse, error) {
		op, err := r.c.store.one(&pb.RequestOp{
			Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: in}})
		return op.GetResponseDeleteRange(), err
	})
}

// Txn implements the KV service.
func (r *remote) Txn(
	ctx context.Context, in *pb.TxnRequest, _ ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	call := Call{Method: "Txn"}
	for _, c := range in.Compare {
		call.Keys = append(call.Keys, string(c.Key))
	}
	for _, branch := range [][]*pb.RequestOp{in.Success, in.Failure} {
		for _, op := range branch {
			call.note(op)
		}
	}
	return do(ctx, r.c, call, func() (*pb.TxnResponse, error) { return r.c.store.txn(in) })
}

// note adds an operation of a transaction to the call.
func (c *Call) note(op *pb.RequestOp) {
	switch {
	case op.GetRequestPut() != nil:
		c.Write = true
		c.Keys = append(c.Keys, string(op.GetRequestPut().Key))
	case op.GetRequestDeleteRange() != nil:
		c.Write = true
		c.Keys = append(c.Keys, string(op.GetRequestDeleteRange().Key))
	case op.GetRequestRange() != nil:
		c.Keys = append(c.Keys, string(op.GetRequestRange().Key))
	}
}

// Compact implements the KV service.
func (r *remote) Compact(
	ctx context.Context, in *pb.CompactionRequest, _ ...grpc.CallOption,
) (*pb.CompactionResponse, error) {
	call := Call{Method: "Compact", Write: true}
	return do(ctx, r.c, call, func() (*pb.CompactionResponse, error) {
		return &pb.CompactionResponse{Header: r.c.store.newHeader()}, r.c.store.Compact(in.Revision)
	})
}
