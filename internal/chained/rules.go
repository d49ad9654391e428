package chained

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Ruler is a Decorator that wants entries in the ruleset of the host. ADD makes them, in one transaction, before Apply;
// CHECK looks for them before Verify; DEL and GC remove them before Remove. Where somebody has flushed the ruleset they can
// be put back, because they follow from the call.
type Ruler[C any] interface {
	Rules(*Session[C]) ([]kernel.Entry, error)
}

// Releaser is a Ruler that has to know which entries DEL or GC have removed.
type Releaser[C any] interface {
	Released(context.Context, *Session[C], []kernel.Held) error
}

// Heir is a Ruler that knows what the reference plugin makes instead of the entries, and says what of that is missing.
type Heir[C any] interface {
	VerifyReference(context.Context, *Session[C]) error
}

// claim makes the entries of the Ruler. It takes over what a container that no longer exists has in their
// place.
func (p untyped) claim(s *session.Core) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	for {
		err := s.Host.Claim(s.Type+" rules", s.Tag, entries)
		var taken *kernel.TakenError
		if !errors.As(err, &taken) {
			return err
		}
		if free, wrong := s.TakeOver(p.concerns, taken.Holder, taken.To); !free {
			return errors.Join(told(err), wrong)
		}
	}
}

// told says in the words of the protocol who has what is wanted.
func told(err error) error {
	var taken *kernel.TakenError
	if errors.As(err, &taken) {
		return Taken(taken.What, taken.Holder)
	}
	return err
}

// Taken returns the error that says that somebody has what is wanted: the owner of a tag, or somebody else in other words.
func Taken(what, holder string) error {
	return cni.Errorf(session.CodeTaken, "%s is taken by %s", what, session.Holder(holder)).WithDetails("DEL of that attachment frees it; GC, if its container is gone")
}

// verifyRules looks for the entries of the Ruler. Where there is none at all the reference plugin may have run ADD.
func (p untyped) verifyRules(ctx context.Context, s *session.Core) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	missing, err := s.Host.Missing(s.Tag, entries)
	if err != nil || len(missing) == 0 {
		return err
	}
	if len(missing) == len(entries) && p.inherits(ctx, s) {
		return nil
	}
	if m := missing[0]; m.Unwanted {
		return session.Drift("nftables table tenon, set %s: expected no %s for %s, found it is there", m.Set, m.Text, s.Attachment())
	}
	return session.Drift("nftables table tenon, set %s: expected %s for %s, found it is not there (%d of %d are missing)",
		missing[0].Set, missing[0].Text, s.Attachment(), len(missing), len(entries))
}

// release removes the entries of attachments that are gone. A kernel without nftables has none.
func (p untyped) release(ctx context.Context, s *session.Core, gone session.Gone) error {
	var errs []error
	for _, concern := range p.concerns {
		var held []kernel.Held
		var err error
		if p.holds != nil && !gone.All() {
			held, err = s.Host.ReleaseIf(p.holds(s.Tag), concern, gone.Tag)
		} else {
			held, err = s.Host.Release(concern, gone.Tag)
		}
		errs = append(errs, kernel.UnlessNoNFT(err))
		if len(held) > 0 {
			errs = append(errs, p.released(ctx, s, held))
		}
	}
	return errors.Join(errs...)
}
