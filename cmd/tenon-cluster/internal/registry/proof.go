package registry

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Proofs are the values by which a process proves that it alone acts for its node. It replaces the
// value in the store again and again. A process with a copy of the node's files or memory does the
// same, so that one of the two finds a value that it has not written.
type Proofs struct {
	Turn  uint64 // of Known: counts the replacements
	Known string // the value that this process or the one before it has written last; "" if none
	Next  string // the value that replaces it, "" if none does; may have been written already
	// InDoubt declares that the store was restored and not confirmed since. It may then have an older
	// proof of this process, which the next one replaces.
	InDoubt bool
	// Revision is the newest revision of the node's document that the process has seen. Join and
	// Rejoin do not replace an older document, unless InDoubt: it is evidence of a restored store.
	Revision int64
}

// none reports that nothing is proved or compared.
func (p Proofs) none() bool { return p.Turn == 0 && p.Known == "" && p.Next == "" }

func (p Proofs) has(value string) bool {
	return value != "" && (value == p.Known || value == p.Next)
}

// proof is the proof of a node in the store with its revision; the zero proof is absent.
type proof struct {
	cluster.Proof
	revision int64
}

func proofOf(answer *pb.RangeResponse) (p proof, err error) {
	for _, kv := range answer.Kvs {
		p.revision = kv.ModRevision
		p.Proof, err = decode[cluster.Proof](kv)
	}
	return p, err
}

// judge returns ErrRival if another process of the node with an identity wrote the proof. An older
// proof of this process shows that the store was restored: ErrForeign.
func (r Nodes) judge(p proof, node, identity string) error {
	own := r.o.Proofs
	switch {
	case p.revision == 0, p.Identity != identity: // the identity is compared elsewhere
		return nil
	case p.Contested != "":
		return fmt.Errorf("node %s: %w: %s", node, ErrRival, p.Contested)
	case own.has(p.Value):
		return nil
	case own.InDoubt && p.Turn < own.Turn:
		return nil
	case p.Turn < own.Turn:
		if r.o.Seen != nil {
			r.o.Seen.Doubt("the proof of this node was number %d and is number %d", own.Turn, p.Turn)
		}
		return fmt.Errorf("node %s: proof %d is older than %d: %w", node, p.Turn, own.Turn, ErrForeign)
	}
	return fmt.Errorf("node %s: %w", node, ErrRival)
}

// prove adds the replacement of a node's proof to a change. ErrRival.
func (r Nodes) prove(c *change, node, identity string, answer *pb.RangeResponse) error {
	if r.o.Proofs.none() {
		return nil
	}
	present, err := proofOf(answer)
	if err == nil {
		err = r.judge(present, node, identity)
	}
	if err != nil {
		return err
	}
	key := r.keys.Proof(node)
	c.same(key, present.revision)
	if r.o.Proofs.Next == "" {
		return nil
	}
	c.put(key, cluster.Proof{Schema: cluster.Schema, Identity: identity,
		Turn: r.o.Proofs.Turn + 1, Value: r.o.Proofs.Next})
	return nil
}

// Prove replaces the proof of a joined node; see [Registry.Proving]. ErrRival: another process has
// replaced it.
func (r Nodes) Prove(ctx context.Context, s Session) error {
	name := s.Node.Name
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		answers, err := r.read(ctx, "proof of node "+name, clientv3.OpGet(r.keys.Proof(name)))
		if err != nil {
			return err
		}
		var c change
		if err := r.prove(&c, name, s.Node.Identity, answers[0]); err != nil {
			return err
		}
		_, err = r.write(ctx, "prove node "+name, c)
		return err
	})
	return err
}

// Contest stops all processes of a node with this identity: each finds at its next renewal that
// there are several, and why.
func (r Nodes) Contest(ctx context.Context, node, identity, cause string) error {
	var c change
	c.put(r.keys.Proof(node), cluster.Proof{
		Schema: cluster.Schema, Identity: identity, Value: r.o.Nonce(),
		Contested: fmt.Sprintf("%s, at %s", cause, r.o.Now().UTC().Format("2006-01-02 15:04:05 MST")),
	})
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		_, err := r.write(ctx, "contest node "+node, c)
		return err
	})
	return err
}

// Settle lets the next process of a node that joins go on, after an operator has stopped all
// others. ErrNotFound.
func (r Nodes) Settle(ctx context.Context, node string) error {
	if _, err := r.node(ctx, node); err != nil {
		return err
	}
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		_, err := r.write(ctx, "settle node "+node,
			change{then: []clientv3.Op{clientv3.OpDelete(r.keys.Proof(node))}})
		return err
	})
	return err
}
