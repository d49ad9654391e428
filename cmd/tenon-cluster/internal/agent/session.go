package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

// errAway means that the node has no session: the store has not answered since the agent started or
// since the lease ended.
var errAway = errors.New("the agent has no contact with the store")

// session is the node in the store: whether it has joined, its document, and its proof.
type session struct {
	o        *Options
	identity *identity
	trust    *trust
	wake     chan<- struct{} // ends the wait for the next renewal

	mu       sync.Mutex         // guards the following fields
	bound    *registry.Registry // its writes fail if the store is replaced
	current  *registry.Session  // nil if the node has not joined
	fenced   bool               // in the store, and not rejoined
	underlay int                // MTU of the link to the other nodes, from the routes
	provedAt time.Time          // when the proof was last replaced
}

// store returns the registry of the store that the node has joined.
func (s *session) store() *registry.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.bound, s.o.Registry)
}

// bind makes all further transactions depend on the nonce of the store.
func (s *session) bind(nonce string) {
	s.mu.Lock()
	s.bound = s.o.Registry.Bound(nonce)
	s.mu.Unlock()
	s.trust.bind(nonce)
}

// joined returns the session, or an error that wraps errAway or [registry.ErrFenced].
func (s *session) joined() (registry.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fenced:
		return registry.Session{}, registry.ErrFenced
	case s.current == nil:
		return registry.Session{}, errAway
	}
	return *s.current, nil
}

// begin begins a session.
func (s *session) begin(now registry.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.fenced = &now, false
}

// fence ends the session of a node that was fenced. again is true if that was known.
func (s *session) fence() (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = s.fenced
	s.current, s.fenced = nil, true
	return again
}

// lose ends the session.
func (s *session) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// lapse ends the session if the error of a transaction shows that the store has given the node up.
// It returns the error.
func (s *session) lapse(err error) error {
	if ends(err) {
		s.lose()
		poke(s.wake)
	}
	return err
}

// ends reports whether an error means that the session has ended: the lease is gone, the node is
// suspect or fenced, or the store was restored or replaced.
func ends(err error) bool {
	return slices.ContainsFunc([]error{registry.ErrLease, registry.ErrSuspect, registry.ErrFenced,
		registry.ErrForeign}, func(end error) bool { return errors.Is(err, end) })
}

// setNode records the present document of the node.
func (s *session) setNode(n registry.Node) {
	if _, err := s.joined(); err != nil {
		return
	}
	s.trust.compareDocument(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		s.current = &registry.Session{Node: n, Lease: s.current.Lease}
	}
}

// update changes the present document of the node. The caller has the turn.
func (s *session) update(ctx context.Context, change func(*cluster.Node)) error {
	now, err := s.joined()
	if err != nil {
		return err
	}
	n, err := s.store().Nodes.Update(ctx, now.Node, change)
	if err != nil {
		return s.lapse(err)
	}
	s.setNode(n)
	return nil
}

// refresh reads the node's document after another program changed it. A document of another boot or
// identity means that a second host, a copy of this one, has joined under the name.
func (s *session) refresh(ctx context.Context) error {
	n, err := s.store().Nodes.Read(ctx, s.o.Node.Name)
	if err != nil {
		return s.lapse(err)
	}
	now, err := s.joined()
	if err != nil {
		return err
	}
	switch {
	case n.Identity != now.Node.Identity || n.Boot != now.Node.Boot:
		cause := registry.ErrIdentity
		if n.Identity == now.Node.Identity {
			cause = registry.ErrRival
		}
		return fmt.Errorf("%w (boot %s)", cause, n.Boot)
	case n.State == cluster.NodeSuspect || n.State == cluster.NodeFenced || n.Epoch != now.Node.Epoch:
		s.lose()
		return nil
	}
	s.setNode(n)
	return s.accept(n)
}

// accept ends the session if an operator has confirmed the node in a restored store: the node joins
// the confirmed store again.
func (s *session) accept(n registry.Node) error {
	confirmed, err := s.trust.accept(n)
	if confirmed {
		s.lose()
	}
	return err
}

// setUnderlay notes the MTU of the link to the other nodes, for the next document.
func (s *session) setUnderlay(mtu int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underlay = mtu
}

// document returns what this node publishes of itself when it joins.
func (s *session) document() cluster.Node {
	own, n := s.identity.node(), s.o.Node
	n.Schema, n.Identity, n.Boot = cluster.Schema, own.Identity, s.o.BootID
	n.Epoch, n.Store = own.Epoch, own.Store
	s.mu.Lock()
	n.MTU = cmp.Or(n.MTU, s.underlay)
	s.mu.Unlock()
	if s.o.Router != nil {
		n.MAC = routes.VTEPMAC(n.Identity).String()
	}
	n.Labels, n.Addresses = maps.Clone(n.Labels), slices.Clone(n.Addresses)
	return n
}
