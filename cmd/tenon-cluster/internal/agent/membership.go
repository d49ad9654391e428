package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// membership keeps the node in the store: it joins, renews the lease, and joins again after the
// lease was lost, after fencing and after a restore. The caller of each method but expel has the
// turn, and so the use of the fields.
type membership struct {
	o         *Options
	identity  *identity
	trust     *trust
	session   *session
	view      *view
	files     *files
	claims    *claims
	commons   *commons
	reclaimer *reclaimer

	rival    rival  // another host that may use the identity
	answered string // the last question of an operator that this process has answered
}

// renew proves that the node may go on, and reports to all nodes that the store was restored: also
// if this node cannot join, because it may be the only one that knows.
func (m *membership) renew(ctx context.Context) error {
	for {
		err := m.prolong(ctx)
		if errors.Is(err, registry.ErrIdentity) {
			return err
		}
		spoken, failed := m.trust.speak(ctx)
		if failed != nil || !spoken {
			return errors.Join(err, failed)
		}
		m.session.lose()
	}
}

// prolong renews the lease. After the loss of the lease, or when another node suspects this one, it
// joins again; after fencing it gives the blocks up.
func (m *membership) prolong(ctx context.Context) error {
	for {
		s, err := m.session.joined()
		if err != nil {
			if err := m.join(ctx); err != nil {
				return err
			}
			if _, err := m.session.joined(); err == nil {
				return nil
			}
			continue // the operator has confirmed a restored store
		}
		err = m.session.prover().Nodes.Renew(ctx, s)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, registry.ErrConflict):
			if err := m.session.refresh(ctx); err != nil {
				return err
			}
		case errors.Is(err, registry.ErrIdentity):
			return err
		case ends(err), errors.Is(err, registry.ErrNotFound):
			m.o.Log.Warn("the session has ended; joining again", "cause", err)
			m.session.lose()
		default:
			return fmt.Errorf("renew: %w", err)
		}
	}
}

// join makes the node known, or known again, and confirms its blocks.
func (m *membership) join(ctx context.Context) error {
	at := m.trust.asking()
	meta, doubt, err := m.o.Registry.Meta.Trust(ctx)
	if err != nil {
		return fmt.Errorf("read the identity of the store: %w", err)
	}
	m.session.bind(meta.Nonce)
	n, err := m.excludeRival(ctx)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := m.trust.compareStore(meta, doubt, n); err != nil {
		return err
	}
	first := m.identity.node().Store == "" && !m.trust.distrusts()
	doc := m.session.document()
	if first {
		doc.Store = meta.Nonce
	}
	s, err := m.session.prover().Nodes.Join(ctx, doc, m.o.TTL)
	if errors.Is(err, registry.ErrFenced) {
		s, err = m.comeBack(ctx)
	}
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	m.trust.meet(at)
	m.session.proved()
	m.session.begin(s)
	m.rival = rival{}
	m.commons.renew()
	if first {
		err = m.identity.remember(func(n *local.Node) { n.Store = meta.Nonce })
	}
	if err == nil {
		err = m.session.renewProof(ctx)
	}
	if err == nil {
		err = m.confirm(ctx)
	}
	if err != nil {
		if !errors.Is(err, errAway) && !errors.Is(err, registry.ErrRival) {
			m.session.lose() // allocations from unconfirmed blocks stay forbidden; try again
		}
		return fmt.Errorf("confirm the blocks: %w", err)
	}
	m.o.Log.Info("joined", "node", s.Node.Name, "epoch", s.Node.Epoch, "blocks", len(s.Node.Blocks))
	return m.session.accept(s.Node)
}

// expel handles the proof that another process uses the identity of this node: the plugin allocates
// nothing from the blocks, because the other one may do so. If both have had a session, the other
// finds out, too: either may be the copy. It returns the error for the end of the agent.
func (m *membership) expel(ctx context.Context, cause error) error {
	err := m.identity.foreign(cause)
	if s, joinErr := m.session.joined(); joinErr == nil && errors.Is(cause, registry.ErrRival) {
		contest := m.session.store().Nodes.Contest(ctx, s.Node.Name, s.Node.Identity, cause.Error())
		if contest != nil {
			m.o.Log.Error("cannot stop the other process with this identity", "error", contest)
		}
	}
	m.session.lose()
	m.files.forbid(ctx)
	return err
}
