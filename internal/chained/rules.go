package chained

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Ruler is a Decorator with elements in rule sets of the host. ADD applies them, in one
// transaction, before Apply; CHECK looks for them before Verify; DEL and GC remove them before
// Remove. A repair restores them, because they are derived from the call. Afterwards the repair
// restores rules of iptables and sources of firewalld, with the same Sandbox as CHECK.
type Ruler interface {
	// Rules returns the elements of the attachment.
	Rules(*Session) ([]kernel.Element, error)

	// Released is called with the elements that DEL or GC removed.
	Released(context.Context, *Session, []kernel.Held) error

	// VerifyReference looks for the rules that the upstream plugin makes instead of the elements.
	// It returns an error if they are missing.
	VerifyReference(context.Context, *Session) error

	// Restore implements Restore of [session.Repairs].
	Restore(context.Context, *Session, session.Step) (restored []string, err error)

	// Move implements Move of [session.Repairs].
	Move(ctx context.Context, s *Session, dryRun bool) ([]session.Move, error)
}

// rules returns the elements of the Ruler, none if the Decorator is no Ruler.
func (p *Plugin) rules(s *Session) ([]kernel.Element, error) {
	if r, ok := p.Decorator.(Ruler); ok {
		return r.Rules(s)
	}
	return nil, nil
}

// applyRules applies the elements of the Ruler. It takes over conflicting elements of containers
// that no longer exist.
func (p *Plugin) applyRules(s *Session) error {
	elements, err := p.rules(s)
	if err != nil || len(elements) == 0 {
		return err
	}
	for {
		err := s.Host.Rules.Apply(s.Type+" rules", s.Tag, elements)
		var conflict *kernel.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		if free, wrong := s.TakeOver(p.RuleSets, conflict.Holder, conflict.To); !free {
			return errors.Join(inUse(err), wrong)
		}
	}
}

// inUse returns the error of [InUse] for a conflict, and any other error unchanged.
func inUse(err error) error {
	var conflict *kernel.ConflictError
	if errors.As(err, &conflict) {
		return InUse(conflict.What, conflict.Holder)
	}
	return err
}

// InUse returns the error that an object is already in use. It names the holder: the attachment of
// a tag, or another program by its own description.
func InUse(what, holder string) error {
	const hint = "DEL of that attachment releases it; if its container no longer exists, GC does"
	return cni.Errorf(session.CodeInUse, "%s is already in use by %s", what, session.Holder(holder)).
		WithDetails(hint)
}

// verifyRules looks for the elements of the Ruler. If none exists, the upstream plugin may have run
// ADD.
func (p *Plugin) verifyRules(ctx context.Context, s *Session) error {
	elements, err := p.rules(s)
	if err != nil || len(elements) == 0 {
		return err
	}
	missing, err := s.Host.Rules.Missing(s.Tag, elements)
	if err != nil || len(missing) == 0 {
		return err
	}
	if len(missing) == len(elements) && p.Decorator.(Ruler).VerifyReference(ctx, s) == nil {
		return nil
	}
	if m := missing[0]; m.Unwanted {
		return session.Drift("nftables table tenon, set %s: unexpected element %s for %s", m.Set, m.Text, s.Attachment())
	}
	return session.Drift("nftables table tenon, set %s: element %s for %s is missing (%d of %d elements)",
		missing[0].Set, missing[0].Text, s.Attachment(), len(missing), len(elements))
}

// release removes the elements of attachments that no longer exist. A kernel without nftables has
// none.
func (p *Plugin) release(ctx context.Context, s *Session, gone Gone) error {
	var errs []error
	for _, ruleSet := range p.RuleSets {
		var held []kernel.Held
		var err error
		if p.Holds != nil && !gone.All() {
			held, err = s.Host.Rules.RemoveIf(p.Holds(s.Tag), ruleSet, gone.Tag)
		} else {
			held, err = s.Host.Rules.Remove(ruleSet, gone.Tag)
		}
		errs = append(errs, kernel.UnlessNoNFT(err))
		if r, ok := p.Decorator.(Ruler); ok && len(held) > 0 {
			errs = append(errs, r.Released(ctx, s, held))
		}
	}
	return errors.Join(errs...)
}
