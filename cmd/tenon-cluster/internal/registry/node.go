package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// defaultTTL is the lease of the key live/N.
const defaultTTL = 30 * time.Second

// Read reads a node. ErrNotFound.
func (r Nodes) Read(ctx context.Context, name string) (Node, error) { return r.node(ctx, name) }

func (r *requests) node(ctx context.Context, name string) (Node, error) {
	answers, err := r.read(ctx, "node "+name, r.readNode(name)...)
	if err != nil {
		return Node{}, err
	}
	return nodeOf(name, answers)
}

// readNode returns the reads that nodeOf needs.
func (r *requests) readNode(name string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(r.keys.Node(name)),
		clientv3.OpGet(r.keys.Live(name), clientv3.WithKeysOnly()),
	}
}

// readNodeAndProof returns the reads of readNode and, as the last one, the read of the proof.
func (r Nodes) readNodeAndProof(name string) []clientv3.Op {
	return append(r.readNode(name), clientv3.OpGet(r.keys.Proof(name)))
}

// nodeOf returns the node of the answers to readNode.
func nodeOf(name string, answers []*pb.RangeResponse) (Node, error) {
	if len(answers[0].Kvs) == 0 {
		return Node{}, fmt.Errorf("node %s: %w", name, ErrNotFound)
	}
	n, err := decodeNode(answers[0].Kvs[0])
	n.Live = len(answers[1].Kvs) > 0
	return n, err
}

func decodeNode(kv *mvccpb.KeyValue) (Node, error) {
	n, err := cluster.Decode[cluster.Node](string(kv.Key), kv.Value)
	return Node{Node: n, Revision: kv.ModRevision}, err
}

// Lives reads which nodes have a leased key. A node without one is not proven dead: see
// [Nodes.Suspect].
func (r Nodes) Lives(ctx context.Context) (map[string]bool, error) {
	kvs, _, err := r.list(ctx, r.keys.Lives(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	live := make(map[string]bool, len(kvs))
	for _, kv := range kvs {
		live[cluster.Last(string(kv.Key))] = true
	}
	return live, nil
}

// still checks that a node is the one that a caller knew: the same host in the same epoch, and
// neither suspect nor fenced.
func (n Node) still(known cluster.Node) error {
	switch {
	case n.Identity != known.Identity:
		return fmt.Errorf("node %s: %w", n.Name, ErrIdentity)
	case n.State == cluster.NodeFenced:
		return fmt.Errorf("node %s: %w", n.Name, ErrFenced)
	case n.Epoch != known.Epoch:
		return fmt.Errorf("node %s: epoch %d has ended, the present one is %d: %w", n.Name,
			known.Epoch, n.Epoch, ErrFenced)
	case n.State == cluster.NodeSuspect:
		return fmt.Errorf("node %s: %w", n.Name, ErrSuspect)
	}
	return nil
}

// mayGain checks that a node may get something new. An older document than the known one shows that
// the store was restored; a gain would replace this evidence.
func (r *requests) mayGain(n, known Node) error {
	if err := n.still(known.Node); err != nil {
		return err
	}
	if err := r.notOlder(n, known.Revision); err != nil {
		return err
	}
	if n.State == cluster.NodeDraining {
		return fmt.Errorf("node %s is draining: %w", n.Name, ErrRefused)
	}
	return nil
}

// notOlder returns ErrForeign for a document that is older than a revision of it that this process
// has seen.
func (r *requests) notOlder(n Node, newest int64) error {
	if n.Revision >= newest {
		return nil
	}
	if r.o.Seen != nil {
		r.o.Seen.Doubt("the revision of this node's document was %d and is %d", newest, n.Revision)
	}
	return fmt.Errorf("node %s: its document is older than before: %w", n.Name, ErrForeign)
}

// Join makes a node known, or changes its addresses: epoch 1 for a new node (or n.Epoch, if that
// is higher), the present one otherwise. A suspect node of the same identity becomes active. Join
// always changes the node's document: requests that an earlier process of the node has sent do
// not commit afterwards. ErrIdentity; ErrRival; ErrFenced; ErrForeign: the store has an older epoch
// than n, so it was restored from a snapshot. The lease lasts ttl, 30 s if zero.
func (r Nodes) Join(ctx context.Context, n cluster.Node, ttl time.Duration) (Session, error) {
	return r.enter(ctx, n, ttl, func(old Node, n *cluster.Node) error {
		switch {
		case old.Revision == 0:
			n.Epoch, n.State = max(n.Epoch, 1), cluster.NodeActive
			n.Blocks = []cluster.BlockRef{}
			return nil
		case old.Identity != n.Identity:
			return fmt.Errorf("join node %s: %w", n.Name, ErrIdentity)
		case old.State == cluster.NodeFenced:
			return fmt.Errorf("join node %s: %w", n.Name, ErrFenced)
		case old.Epoch < n.Epoch:
			return fmt.Errorf("join node %s: the store has epoch %d, the node %d: %w", n.Name,
				old.Epoch, n.Epoch, ErrForeign)
		}
		n.Epoch, n.Blocks, n.State, n.Since = old.Epoch, old.Blocks, old.State, old.Since
		if r.o.Store != "" && old.Store == r.o.Store {
			n.Store = old.Store // an operator has confirmed the node
		}
		if old.State == cluster.NodeSuspect {
			n.State, n.Since = cluster.NodeActive, r.o.Now()
			if old.Drain {
				n.State = cluster.NodeDraining
			}
		}
		return nil
	})
}

// Rejoin gives a fenced node with an empty list the next epoch. Another host may take the name
// over in this way. ErrInUse: it still has blocks, shared addresses or tokens; see Reclaim.
// ErrConflict: it is not fenced.
func (r Nodes) Rejoin(ctx context.Context, n cluster.Node, ttl time.Duration) (Session, error) {
	return r.enter(ctx, n, ttl, func(old Node, n *cluster.Node) error {
		switch {
		case old.Revision == 0:
			return fmt.Errorf("rejoin node %s: %w", n.Name, ErrNotFound)
		case old.State != cluster.NodeFenced:
			return fmt.Errorf("rejoin node %s: it is %s: %w", n.Name, old.State, ErrConflict)
		}
		if len(old.Blocks) > 0 {
			return fmt.Errorf("rejoin node %s: it has %d blocks: %w", n.Name, len(old.Blocks), ErrInUse)
		}
		left, err := r.belongings(ctx, n.Name)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("rejoin node %s: it has %s: %w", n.Name, left[0].key, ErrInUse)
		}
		n.Epoch, n.State = max(n.Epoch, old.Epoch)+1, cluster.NodeActive
		n.Blocks = []cluster.BlockRef{}
		return nil
	})
}

// enter writes a node's document and its leased key. decide completes the document.
func (r Nodes) enter(
	ctx context.Context, n cluster.Node, ttl time.Duration,
	decide func(old Node, n *cluster.Node) error,
) (s Session, err error) {
	if err := cluster.ValidateName(n.Name); err != nil {
		return s, err
	}
	if ttl == 0 {
		ttl = defaultTTL
	}
	s.Lease, err = r.lease(ctx, ttl)
	if err != nil {
		return s, err
	}
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		s.Node, err = r.tryEnter(ctx, n, s.Lease, decide)
		return err
	})
	if err != nil && !errors.Is(err, ErrUnknown) {
		r.revoke(ctx, s.Lease)
	}
	return s, err
}

func (r Nodes) tryEnter(
	ctx context.Context, n cluster.Node, lease clientv3.LeaseID,
	decide func(old Node, n *cluster.Node) error,
) (Node, error) {
	answers, err := r.read(ctx, "node "+n.Name, r.readNodeAndProof(n.Name)...)
	if err != nil {
		return Node{}, err
	}
	old, err := nodeOf(n.Name, answers)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return Node{}, err
	case old.Live && answers[1].Kvs[0].Lease == int64(lease): // an earlier try has committed
		return old, old.still(old.Node)
	}
	if old.Revision > 0 && old.Identity == n.Identity && !r.o.Proofs.InDoubt {
		if err := r.notOlder(old, r.o.Proofs.Revision); err != nil {
			return Node{}, err
		}
	}
	n.Schema, n.Since = cluster.Schema, r.o.Now()
	n.Evidence, n.Author, n.Drain = "", "", false
	if err := decide(old, &n); err != nil {
		return Node{}, err
	}
	var c change
	if err := r.prove(&c, n.Name, n.Identity, answers[2]); err != nil {
		return Node{}, fmt.Errorf("join: %w", err)
	}
	c.same(r.keys.Node(n.Name), old.Revision)
	c.put(r.keys.Node(n.Name), n)
	c.then = append(c.then, clientv3.OpPut(r.keys.Live(n.Name), strconv.FormatUint(n.Epoch, 10),
		clientv3.WithLease(lease)))
	revision, err := r.write(ctx, "join node "+n.Name, c)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return Node{}, fmt.Errorf("%w: %w", ErrLease, err)
	case err != nil:
		return Node{}, err
	}
	return Node{Node: n, Revision: revision, Live: true}, nil
}

// Renew proves that the node is unchanged and its lease alive, and keeps the lease alive.
// ErrConflict: the node's document has changed, read it again; ErrLease, ErrSuspect, ErrFenced,
// ErrIdentity, ErrRival, ErrForeign.
func (r Nodes) Renew(ctx context.Context, s Session) error {
	name := s.Node.Name
	if err := r.keepAlive(ctx, s.Lease); err != nil {
		return fmt.Errorf("renew node %s: %w", name, err)
	}
	var c change
	c.same(r.keys.Node(name), s.Node.Revision)
	c.compares = append(c.compares,
		clientv3.Compare(clientv3.LeaseValue(r.keys.Live(name)), "=", s.Lease))
	c.then = []clientv3.Op{clientv3.OpGet(r.keys.Proof(name))}
	c.otherwise = r.readNodeAndProof(name)
	o, err := r.commit(ctx, "renew node "+name, c)
	if err != nil {
		return err
	}
	if !r.o.Proofs.none() {
		present, err := proofOf(o.answers[len(o.answers)-1])
		if err == nil {
			err = r.judge(present, name, s.Node.Identity)
		}
		if err != nil {
			return fmt.Errorf("renew: %w", err)
		}
	}
	if o.held {
		return s.Node.still(s.Node.Node)
	}
	now, err := nodeOf(name, o.answers)
	if err != nil {
		return err
	}
	if err := now.still(s.Node.Node); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if live := o.answers[1].Kvs; len(live) == 0 || live[0].Lease != int64(s.Lease) {
		return fmt.Errorf("renew node %s: %w", name, ErrLease)
	}
	return fmt.Errorf("renew node %s: its document has changed: %w", name, ErrConflict)
}

func (r Nodes) keepAlive(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	_, err := r.client.KeepAliveOnce(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%w: %w", ErrLease, err)
	}
	return err
}

// Leave deletes the leased key of a node. Its agent calls it when it stops.
func (r Nodes) Leave(ctx context.Context, s Session) { r.revoke(ctx, s.Lease) }

// Update changes the document of a joined node: addresses, labels, MTU, or the state between
// active and draining. It returns the present document if change changes nothing. A change of the
// store's nonce is an operator's confirmation: it also deletes the proof, which may be an old one.
func (r Nodes) Update(
	ctx context.Context, n Node, change func(*cluster.Node),
) (now Node, err error) {
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		now, err = r.update(ctx, n, change)
		return err
	})
	return now, err
}

func (r Nodes) update(ctx context.Context, n Node, edit func(*cluster.Node)) (Node, error) {
	old, err := r.node(ctx, n.Name)
	if err != nil {
		return old, err
	}
	if err := old.still(n.Node); err != nil {
		return old, err
	}
	next := old.Node
	edit(&next)
	next.Schema, next.Name, next.Identity = cluster.Schema, old.Name, old.Identity
	next.Epoch, next.Drain = old.Epoch, old.Drain
	next.Blocks, next.Evidence, next.Author = old.Blocks, old.Evidence, old.Author
	if next.State != cluster.NodeActive && next.State != cluster.NodeDraining {
		return old, fmt.Errorf("node %s: state %q: %w", n.Name, next.State, ErrRefused)
	}
	if next.State != old.State {
		next.Since = r.o.Now()
	}
	if encode(next) == encode(old.Node) {
		return old, nil
	}
	return r.writeNode(ctx, "update node "+n.Name, old, next)
}

// writeNode replaces the document of a node at its revision.
func (r *requests) writeNode(
	ctx context.Context, what string, old Node, next cluster.Node,
) (Node, error) {
	var c change
	c.same(r.keys.Node(old.Name), old.Revision)
	c.put(r.keys.Node(old.Name), next)
	if next.Store != old.Store {
		c.then = append(c.then, clientv3.OpDelete(r.keys.Proof(old.Name)))
	}
	revision, err := r.write(ctx, what, c)
	if err != nil {
		return old, err
	}
	return Node{Node: next, Revision: revision, Live: old.Live}, nil
}

// Delete deletes a node that holds nothing and is draining, suspect or fenced. ErrInUse: it
// has blocks, shared addresses or tokens, or its agent runs; ErrConflict: it is active.
func (r Nodes) Delete(ctx context.Context, name string) error {
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		n, err := r.node(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		case n.State == cluster.NodeActive:
			return fmt.Errorf("delete node %s: it is active: %w", name, ErrConflict)
		case len(n.Blocks) > 0:
			return fmt.Errorf("delete node %s: it has %d blocks: %w", name, len(n.Blocks), ErrInUse)
		case n.Live:
			return fmt.Errorf("delete node %s: its agent runs: %w", name, ErrInUse)
		}
		left, err := r.belongings(ctx, name)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("delete node %s: it has %s: %w", name, left[0].key, ErrInUse)
		}
		var c change
		c.same(r.keys.Node(name), n.Revision)
		c.absent(r.keys.Live(name))
		c.then = append(c.then, clientv3.OpDelete(r.keys.Node(name)),
			clientv3.OpDelete(r.keys.Proof(name)), clientv3.OpDelete(r.keys.Answer(name)))
		_, err = r.write(ctx, "delete node "+name, c)
		return err
	})
	return err
}

// belonging is a key outside the block list by which a node holds something.
type belonging struct {
	key      string
	revision int64           // of the tokens
	holder   *cluster.Holder // of a shared address; nil for tokens
}

// belongings lists the shared addresses and tokens of a node. The node's state must forbid that
// it gains more.
func (r Nodes) belongings(ctx context.Context, node string) (found []belonging, err error) {
	held, err := Shared(r).Held(ctx, node)
	if err != nil {
		return nil, err
	}
	for i, h := range held {
		found = append(found, belonging{key: r.keys.Addr(h.Pool, h.Addr), holder: &held[i]})
	}
	kvs, _, err := r.list(ctx, r.keys.Quotas("", ""), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		if cluster.Last(string(kv.Key)) == node {
			found = append(found, belonging{key: string(kv.Key), revision: kv.ModRevision})
		}
	}
	return found, nil
}
