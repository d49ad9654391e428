// Package history records what the nodes of a test do, and checks it: a [Store] records every
// transaction that touches a block or a shared address and checks with porcupine that the history
// of each is linearizable, and [Addresses] records every allocation and release and checks that no
// address has two holders at once.
package history

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/intercept"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// Store is the history of the blocks and shared addresses of a store. Clients record into it.
type Store struct {
	keys  cluster.Keys
	start time.Time

	mu         sync.Mutex
	operations map[string][]porcupine.Operation // by key
	clients    int
}

// NewStore returns the empty history of a cluster.
func NewStore(name string) *Store {
	return &Store{keys: cluster.NewKeys(name), start: time.Now(),
		operations: map[string][]porcupine.Operation{}}
}

// Document is the part of a block or a shared address that decides who owns it. The zero Document
// stands for an absent key.
type Document struct {
	State cluster.BlockState `json:"state"` // empty for a shared address
	Owner string             `json:"owner"` // of a block
	Node  string             `json:"node"`  // of a shared address
	Nonce string             `json:"nonce"`
}

// operation is the input of the model.
type operation struct {
	key   string
	write bool
	to    Document // written, or read
	known bool     // the operation has succeeded; otherwise its outcome is not known
}

// Check returns a text for each key with a history that is not linearizable, or has a forbidden
// transition. A check that takes longer than a minute counts as failed.
func (s *Store) Check() (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, ops := range s.operations {
		result, _ := porcupine.CheckOperationsVerbose(model(), ops, time.Minute)
		if result != porcupine.Ok {
			wrong = append(wrong, fmt.Sprintf("%s: %s%s", key, result, describe(ops)))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// Operations returns the number of recorded operations and of keys.
func (s *Store) Operations() (operations, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ops := range s.operations {
		operations += len(ops)
	}
	return operations, len(s.operations)
}

func describe(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, op := range ops {
		in := op.Input.(operation)
		end := "open"
		if op.Return != math.MaxInt64 {
			end = time.Duration(op.Return).String()
		}
		fmt.Fprintf(&text, "\n  %v - %s client %d write %t %+v", time.Duration(op.Call), end,
			op.ClientId, in.write, in.to)
	}
	return text.String()
}

// model returns the model of one key, which is absent at first. A write without a known outcome may
// take effect at any later time, or never.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{Document{}} },
		Step: func(state, input, _ any) []any {
			from, in := state.(Document), input.(operation)
			switch {
			case !in.write && from == in.to:
				return []any{from}
			case !in.write:
				return nil
			case in.known && allowed(from, in.to):
				return []any{in.to}
			case in.known:
				return nil
			case allowed(from, in.to):
				return []any{from, in.to}
			}
			return []any{from}
		},
	}
	return m.ToModel()
}

// allowed reports whether a transaction may change a key between two documents: see the states of
// a block. A shared address passes from one holder to the next only by deletion.
func allowed(from, to Document) bool {
	free := Document{}
	switch {
	case from == to: // grants of a block change
		return from != free
	case from == free:
		return to.State == cluster.BlockOwned || to.State == cluster.BlockShared || to.State == ""
	case to == free:
		return from.State != cluster.BlockOwned
	case to.State == cluster.BlockCooling:
		return from.State == cluster.BlockOwned && to.Nonce == from.Nonce
	}
	return false
}

// Client returns a client that records the transactions of c.
func (s *Store) Client(c registry.Client) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return &Client{Client: c, s: s, id: s.clients}
}

// Client is a client that records.
type Client struct {
	registry.Client
	s  *Store
	id int
}

// relevant reports whether the history has the key.
func (s *Store) relevant(key string) bool {
	return strings.HasPrefix(key, s.keys.Blocks("")) || strings.HasPrefix(key, s.keys.Addrs(""))
}

func (c *Client) now() int64 { return int64(time.Since(c.s.start)) }

// record adds the effects of operations that were sent at a time. A failure of the compares is no
// operation of a single key and is not recorded.
func (c *Client) record(call int64, ops []clientv3.Op, answers []get, err error) {
	ret := c.now()
	for i, op := range ops {
		key := string(op.KeyBytes())
		single := len(op.RangeBytes()) == 0
		switch {
		case op.IsGet() && err == nil:
			c.reads(call, ret, op, answers[i])
		case !c.s.relevant(key):
		case op.IsPut():
			c.add(call, ret, operation{key: key, write: true, to: decode(op.ValueBytes()),
				known: err == nil})
		case op.IsDelete() && single:
			c.add(call, ret, operation{key: key, write: true, known: err == nil})
		}
	}
}

// get is the answer to a Get in a transaction.
type get *clientv3.GetResponse

// reads records what a linearizable read has shown: the keys that it returned and, of a single key,
// its absence.
func (c *Client) reads(call, ret int64, op clientv3.Op, r get) {
	if r == nil || op.IsSerializable() || op.Rev() != 0 || op.IsKeysOnly() || op.IsCountOnly() {
		return
	}
	for _, kv := range r.Kvs {
		if key := string(kv.Key); c.s.relevant(key) {
			c.add(call, ret, operation{key: key, to: decode(kv.Value), known: true})
		}
	}
	key, single := string(op.KeyBytes()), len(op.RangeBytes()) == 0
	if len(r.Kvs) == 0 && single && c.s.relevant(key) {
		c.add(call, ret, operation{key: key, known: true})
	}
}

func (c *Client) add(call, ret int64, in operation) {
	if !in.known {
		ret = math.MaxInt64
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.operations[in.key] = append(c.s.operations[in.key],
		porcupine.Operation{ClientId: c.id, Input: in, Call: call, Return: ret})
}

func decode(value []byte) Document {
	var d Document
	if err := json.Unmarshal(value, &d); err != nil {
		d.Nonce = "invalid: " + err.Error()
	}
	if d.State == cluster.BlockCooling {
		d.Owner = ""
	}
	return d
}

// Get implements [clientv3.KV].
func (c *Client) Get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	call := c.now()
	r, err := c.Client.Get(ctx, key, opts...)
	c.record(call, []clientv3.Op{clientv3.OpGet(key, opts...)}, []get{r}, err)
	return r, err
}

// Put implements [clientv3.KV].
func (c *Client) Put(
	ctx context.Context, key, value string, opts ...clientv3.OpOption,
) (*clientv3.PutResponse, error) {
	call := c.now()
	r, err := c.Client.Put(ctx, key, value, opts...)
	c.record(call, []clientv3.Op{clientv3.OpPut(key, value, opts...)}, nil, err)
	return r, err
}

// Delete implements [clientv3.KV].
func (c *Client) Delete(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.DeleteResponse, error) {
	call := c.now()
	r, err := c.Client.Delete(ctx, key, opts...)
	c.record(call, []clientv3.Op{clientv3.OpDelete(key, opts...)}, nil, err)
	return r, err
}

// Txn implements [clientv3.KV].
func (c *Client) Txn(ctx context.Context) clientv3.Txn {
	t := &intercept.Txn{Txn: c.Client.Txn(ctx)}
	t.Send = func(send intercept.Send) (*clientv3.TxnResponse, error) {
		call := c.now()
		r, err := send()
		switch {
		case err != nil:
			c.record(call, t.Kept, nil, err)
		case r.Succeeded:
			c.record(call, t.Kept, gets(r), nil)
		default:
			c.record(call, t.Otherwise, gets(r), nil)
		}
		return r, err
	}
	return t
}

func gets(r *clientv3.TxnResponse) []get {
	all := make([]get, len(r.Responses))
	for i, one := range r.Responses {
		if found := one.GetResponseRange(); found != nil {
			all[i] = (*clientv3.GetResponse)(found)
		}
	}
	return all
}
