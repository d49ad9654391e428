package history

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// answer is a client that gives one answer to each transaction.
type answer struct {
	registry.Client
	err   error
	kept  bool   // the compares hold
	shown string // by reads
}

func (a *answer) Get(
	_ context.Context, key string, _ ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(a.shown)}
	return &clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{kv}}, nil
}

func (a *answer) Txn(context.Context) clientv3.Txn { return reply{a: a} }

type reply struct {
	clientv3.Txn
	a *answer
}

func (r reply) If(...clientv3.Cmp) clientv3.Txn  { return r }
func (r reply) Then(...clientv3.Op) clientv3.Txn { return r }
func (r reply) Commit() (*clientv3.TxnResponse, error) {
	if r.a.err != nil {
		return nil, r.a.err
	}
	return &clientv3.TxnResponse{Succeeded: r.a.kept}, nil
}

// TestStoreFindsForbiddenHistories checks that the checker of blocks can fail.
func TestStoreFindsForbiddenHistories(t *testing.T) {
	keys := cluster.NewKeys("c")
	block := keys.Block("p", netip.MustParsePrefix("10.0.0.0/26"))
	addr := keys.Addr("p", netip.MustParseAddr("10.0.0.1"))
	put := func(key, value string) clientv3.Op { return clientv3.OpPut(key, value) }
	const (
		a       = `{"state":"owned","owner":"a","nonce":"1"}`
		b       = `{"state":"owned","owner":"b","nonce":"2"}`
		cooling = `{"state":"cooling","nonce":"1"}`
		shared  = `{"state":"shared","nonce":"3"}`
	)
	lost := errors.New("timeout")
	tests := map[string]struct {
		ops   []clientv3.Op
		errs  map[int]error
		wrong bool
	}{
		"claim, return, expiry, claim": {ops: []clientv3.Op{put(block, a), put(block, cooling),
			clientv3.OpDelete(block), put(block, b)}},
		"two owners": {ops: []clientv3.Op{put(block, a), put(block, b)}, wrong: true},
		"deleted without cooling": {ops: []clientv3.Op{put(block, a),
			clientv3.OpDelete(block)}, wrong: true},
		"claimed while cooling": {ops: []clientv3.Op{put(block, a), put(block, cooling),
			put(block, b)}, wrong: true},
		"a lost claim may have failed": {ops: []clientv3.Op{put(block, a), put(block, b)},
			errs: map[int]error{0: lost}},
		"a lost return may commit later": {ops: []clientv3.Op{put(block, a), put(block, cooling),
			put(block, a), clientv3.OpDelete(block), put(block, b)}, errs: map[int]error{1: lost}},
		"shared, owned":      {ops: []clientv3.Op{put(block, shared), put(block, a)}, wrong: true},
		"shared, free again": {ops: []clientv3.Op{put(block, shared), clientv3.OpDelete(block)}},
		"an address with two holders": {ops: []clientv3.Op{put(addr, `{"node":"a","nonce":"1"}`),
			put(addr, `{"node":"b","nonce":"2"}`)}, wrong: true},
		"an address released": {ops: []clientv3.Op{put(addr, `{"node":"a","nonce":"1"}`),
			clientv3.OpDelete(addr), put(addr, `{"node":"b","nonce":"2"}`)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := NewStore("c")
			for i, op := range test.ops {
				c := s.Client(&answer{kept: true, err: test.errs[i]})
				_, _ = c.Txn(t.Context()).If().Then(op).Commit()
			}
			if wrong := s.Check(); (wrong != nil) != test.wrong {
				t.Errorf("got %v", wrong)
			}
		})
	}
	t.Run("a read of an earlier owner", func(t *testing.T) {
		s := NewStore("c")
		_, _ = s.Client(&answer{kept: true}).Txn(t.Context()).Then(put(block, a)).Commit()
		_, _ = s.Client(&answer{shown: b}).Get(t.Context(), block)
		if wrong := s.Check(); wrong == nil {
			t.Error("not found")
		}
	})
	t.Run("failed compares change nothing", func(t *testing.T) {
		s := NewStore("c")
		_, _ = s.Client(&answer{kept: true}).Txn(t.Context()).Then(put(block, a)).Commit()
		_, _ = s.Client(&answer{}).Txn(t.Context()).Then(put(block, b)).Commit()
		if wrong := s.Check(); wrong != nil {
			t.Error(wrong)
		}
	})
}

// TestAddressesFindsTwoHolders checks that the checker of addresses can fail.
func TestAddressesFindsTwoHolders(t *testing.T) {
	x, y := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a, b := Attachment{"n1", "a"}, Attachment{"n2", "b"}
	h := NewAddresses()
	h.Allocated(a, x)
	h.Allocated(a, y)
	h.Releasing(a)
	h.Allocated(b, x)
	if wrong := h.Check(); wrong != nil {
		t.Errorf("after a release: %v", wrong)
	}
	h.Died("n2")
	h.Allocated(a, x)
	if wrong := h.Check(); wrong != nil {
		t.Errorf("after the end of a node: %v", wrong)
	}
	h.Allocated(b, x)
	if wrong := strings.Join(h.Check(), ";"); !strings.Contains(wrong, "10.0.0.1: {n1 a}") {
		t.Errorf("two holders: %q", wrong)
	}
}

// TestAddressesOfOneInstant checks that virtual time does not hide two holders.
func TestAddressesOfOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := netip.MustParseAddr("10.0.0.1")
		a, b := Attachment{"n1", "a"}, Attachment{"n2", "b"}
		h := NewAddresses()
		time.Sleep(time.Second)
		h.Allocated(a, x)
		h.Releasing(a)
		h.Allocated(b, x)
		if wrong := h.Check(); wrong != nil {
			t.Errorf("one after the other: %v", wrong)
		}
		h.Allocated(a, x)
		h.Releasing(a)
		h.Releasing(b)
		if wrong := h.Check(); len(wrong) != 1 {
			t.Errorf("at once: %v", wrong)
		}
	})
}
