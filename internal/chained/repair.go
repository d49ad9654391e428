package chained

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Restorer is a Decorator that has made more than the entries of its [Ruler] where others may take it away: rules by
// iptables, interfaces in the zones of firewalld. Both methods return what was missing, for people, and leave what is
// there as it is. Sandbox is as on CHECK.
type Restorer[C any] interface {
	// Deny puts back what refuses packets. Of all attachments it comes before any Allow.
	Deny(context.Context, *Session[C]) (restored []string, err error)

	// Allow puts back the rest.
	Allow(context.Context, *Session[C]) (restored []string, err error)
}

// Mover is a Restorer that chooses its backend by the state of the host.
type Mover[C any] interface {
	// Move is a [session.Mover], called in a session as Allow is.
	Move(ctx context.Context, s *Session[C], dryRun bool) ([]session.Move, error)
}

// repair makes the entries of the Ruler again, then what the Restorer has.
func (p untyped) repair(ctx context.Context, c *plugin.AnyCall) error {
	rules, more := p.repairs()
	if !rules && !more {
		return nil
	}
	if err := p.inSession(ctx, c, attached); err != nil {
		return err
	}
	if err := p.inSession(ctx, c, p.claim); err != nil || !more {
		return err
	}
	step := func(restore func(context.Context, *session.Core) ([]string, error)) session.Step {
		return func(ctx context.Context) (restored []string, err error) {
			err = p.inSession(ctx, c, func(s *session.Core) (err error) {
				restored, err = restore(ctx, s)
				return err
			})
			return restored, err
		}
	}
	move := func(ctx context.Context, dryRun bool) (moves []session.Move, err error) {
		err = p.inSession(ctx, c, func(s *session.Core) (err error) {
			moves, err = p.move(ctx, s, dryRun)
			return err
		})
		return moves, err
	}
	return session.PutOff(ctx, session.Steps{Deny: step(p.deny), Allow: step(p.allow), Move: move})
}

// attached returns nil if the container's interface is there, with one of its addresses if it was given any. Otherwise the
// namespace is another container's by now, and so may be what rules would be about: [cni.CodeUnknownContainer].
func attached(s *session.Core) error {
	if s.Sandbox == nil {
		if err := s.Enter(); err != nil {
			return err
		}
	}
	link, err := s.Sandbox.Link(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Errorf(cni.CodeUnknownContainer, "%w", err)
	}
	if err != nil {
		return err
	}
	have, err := s.Sandbox.Addrs(link)
	given := s.PrevIPs()
	if err != nil || len(given) == 0 || slices.ContainsFunc(given, func(ip cni.IP) bool {
		return slices.ContainsFunc(have, func(p netip.Prefix) bool { return p.Addr() == ip.Address.Addr() })
	}) {
		return err
	}
	return cni.Errorf(cni.CodeUnknownContainer, "interface %s has none of its addresses: it is another's by now", s.IfName)
}

// inSession makes changes in a session, and takes back what it has changed if it fails.
func (p untyped) inSession(ctx context.Context, c *plugin.AnyCall, change func(*session.Core) error) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := change(s); err != nil {
		return errors.Join(err, s.Tx.Rollback())
	}
	s.Tx.Keep()
	return nil
}
