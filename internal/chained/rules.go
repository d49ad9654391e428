package chained

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Ruler is a Decorator that wants entries in the rule set of the host. ADD makes them, in one
// transaction, before Apply; CHECK looks for them before Verify; DEL and GC remove them before
// Remove. A repair restores them, because they follow from the call. Afterwards the repair restores
// rules of iptables and sources of firewalld; Sandbox is then as on CHECK.
type Ruler interface {
	// Rules returns the entries of the attachment.
	Rules(*Session) ([]kernel.Element, error)

	// Released is called with the entries that DEL or GC have removed.
	Released(context.Context, *Session, []kernel.Held) error

	// VerifyReference looks for what the upstream plugin makes instead of the entries. It returns
	// an error if that is missing.
	VerifyReference(context.Context, *Session) error

	// Restore implements Restore of [session.Repairs].
	Restore(context.Context, *Session, session.Step) (restored []string, err error)

	// Move implements Move of [session.Repairs].
	Move(ctx context.Context, s *Session, dryRun bool) ([]session.Move, error)
}

// rules returns the entries of the Ruler, none if the Decorator is no Ruler.
func (p *Plugin) rules(s *Session) ([]kernel.Element, error) {
	if r, ok := p.Decorator.(Ruler); ok {
		return r.Rules(s)
	}
	return nil, nil
}

// applyRules applies the elements of the Ruler. It takes over conflicting elements of containers that no
// longer exist.
func (p *Plugin) applyRules(s *Session) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	for {
		err := s.Host.Rules.Apply(s.Type+" rules", s.Tag, entries)
		var conflict *kernel.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		if free, wrong := s.TakeOver(p.RuleSets, conflict.Holder, conflict.To); !free {
			return errors.Join(told(err), wrong)
		}
	}
}

// told says in the words of the protocol who has what is wanted.
func told(err error) error {
	var conflict *kernel.ConflictError
	if errors.As(err, &conflict) {
		return InUse(conflict.What, conflict.Holder)
	}
	return err
}

// InUse returns the error that an object is in use. It names the holder: the attachment of a tag, or
// another program in its own words.
func InUse(what, holder string) error {
	return cni.Errorf(session.CodeInUse, "%s is taken by %s", what, session.Holder(holder)).WithDetails("DEL of that attachment frees it; GC, if its container is gone")
}

// verifyRules looks for the entries of the Ruler. Where there is none at all the reference plugin may have run ADD.
func (p *Plugin) verifyRules(ctx context.Context, s *Session) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	missing, err := s.Host.Rules.Missing(s.Tag, entries)
	if err != nil || len(missing) == 0 {
		return err
	}
	if len(missing) == len(entries) && p.Decorator.(Ruler).VerifyReference(ctx, s) == nil {
		return nil
	}
	if m := missing[0]; m.Unwanted {
		return session.Drift("nftables table tenon, set %s: expected no %s for %s, found it is there", m.Set, m.Text, s.Attachment())
	}
	return session.Drift("nftables table tenon, set %s: expected %s for %s, found it is not there (%d of %d are missing)",
		missing[0].Set, missing[0].Text, s.Attachment(), len(missing), len(entries))
}

// release removes the entries of attachments that are gone. A kernel without nftables has none.
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
