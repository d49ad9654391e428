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

// Repair implements [session.Repairer]. It repairs the rules of a [Ruler].
func (p *Plugin) Repair(ctx context.Context, c *plugin.Call, repairs *session.Repairs) error {
	r, ok := p.Decorator.(Ruler)
	if !ok {
		return nil
	}
	if err := p.inSession(ctx, c, attached); err != nil {
		return err
	}
	repairs.Restore = func(ctx context.Context, step session.Step) (restored []string, err error) {
		err = p.inSession(ctx, c, func(s *Session) (err error) {
			restored, err = r.Restore(ctx, s, step)
			return err
		})
		return restored, err
	}
	repairs.Move = func(ctx context.Context, dryRun bool) (moves []session.Move, err error) {
		err = p.inSession(ctx, c, func(s *Session) (err error) {
			moves, err = r.Move(ctx, s, dryRun)
			return err
		})
		return moves, err
	}
	return p.inSession(ctx, c, func(s *Session) error {
		s.Tx.CollectInto(&repairs.Rules)
		return p.applyRules(s)
	})
}

// attached returns nil if the container's interface exists and has one of its addresses, if it was
// given any. Otherwise the namespace and the addresses may belong to another container now, and the
// error has the code [cni.CodeUnknownContainer].
func attached(s *Session) error {
	if s.Sandbox == nil {
		if err := s.Enter(); err != nil {
			return err
		}
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Errorf(cni.CodeUnknownContainer, "%w", err)
	}
	if err != nil {
		return err
	}
	have, err := s.Sandbox.Addrs.Of(link)
	given := s.PrevIPs()
	if err != nil || len(given) == 0 || slices.ContainsFunc(given, func(ip cni.IP) bool {
		return slices.ContainsFunc(have, func(p netip.Prefix) bool { return p.Addr() == ip.Address.Addr() })
	}) {
		return err
	}
	return cni.Errorf(cni.CodeUnknownContainer, "interface %s has none of its addresses, so it belongs to another container", s.IfName)
}

// inSession makes changes in a session, and rolls them back if change fails.
func (p *Plugin) inSession(ctx context.Context, c *plugin.Call, change func(*Session) error) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Change(func() error { return change(s) })
}
