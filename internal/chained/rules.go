package chained

import (
	"context"
	"errors"
	"fmt"

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

// claim makes the entries of the Ruler.
func (p Plugin[C]) claim(s *Session[C]) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	return s.Host.Claim(s.Type+" rules", s.Tag, entries)
}

// rules are the entries of the Ruler, none if the Decorator is not one.
func (p Plugin[C]) rules(s *Session[C]) ([]kernel.Entry, error) {
	if r, ok := p.Decorator.(Ruler[C]); ok {
		return r.Rules(s)
	}
	return nil, nil
}

// verifyRules looks for the entries of the Ruler.
func (p Plugin[C]) verifyRules(s *Session[C]) error {
	entries, err := p.rules(s)
	if err != nil || len(entries) == 0 {
		return err
	}
	missing, err := s.Host.Missing(s.Tag, entries)
	if err != nil || len(missing) == 0 {
		return err
	}
	if m := missing[0]; m.Unwanted {
		return fmt.Errorf("nftables table tenon, set %s: expected no %s for %s, found it is there", m.Set, m.Text, s.Attachment())
	}
	return fmt.Errorf("nftables table tenon, set %s: expected %s for %s, found it is not there (%d of %d are missing)",
		missing[0].Set, missing[0].Text, s.Attachment(), len(missing), len(entries))
}

// release removes the entries of attachments that are gone. A kernel without nftables has none.
func (p Plugin[C]) release(ctx context.Context, s *Session[C], gone session.Gone) error {
	var errs []error
	for _, concern := range p.Concerns {
		held, err := s.Host.Release(concern, gone.Tag)
		errs = append(errs, kernel.UnlessNoNFT(err))
		if r, ok := p.Decorator.(Releaser[C]); ok && len(held) > 0 {
			errs = append(errs, r.Released(ctx, s, held))
		}
	}
	return errors.Join(errs...)
}
