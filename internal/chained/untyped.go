package chained

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// untyped is a Plugin without the type of its configuration, so that the work is compiled once and not for each type.
type untyped struct {
	decorator
	inside   bool
	noPrev   NoPrev
	concerns []*kernel.Concern
	holds    func(tag string) kernel.Entry
}

// decorator is a Decorator that is called without the type of its configuration. What it does not implement does nothing.
type decorator interface {
	apply(context.Context, *session.Core, *cni.Result) error
	verify(context.Context, *session.Core) error
	remove(context.Context, *session.Core, Gone) error
	rules(*session.Core) ([]kernel.Entry, error)
	released(context.Context, *session.Core, []kernel.Held) error
	inherits(context.Context, *session.Core) bool // what the reference plugin makes is there, for an Heir
	repairs() (ruler, restorer bool)
	deny(context.Context, *session.Core) (restored []string, err error)  // of a Restorer
	allow(context.Context, *session.Core) (restored []string, err error) // of a Restorer
	move(ctx context.Context, s *session.Core, dryRun bool) ([]session.Move, error)
}

// typed gives the calls of a decorator their type.
type typed[C any] struct{ d Decorator[C] }

func (t *typed[C]) apply(ctx context.Context, s *session.Core, r *cni.Result) error {
	return t.d.Apply(ctx, session.Of[C](s), r)
}

func (t *typed[C]) verify(ctx context.Context, s *session.Core) error {
	return t.d.Verify(ctx, session.Of[C](s))
}

func (t *typed[C]) remove(ctx context.Context, s *session.Core, g Gone) error {
	return t.d.Remove(ctx, session.Of[C](s), g)
}

func (t *typed[C]) rules(s *session.Core) ([]kernel.Entry, error) {
	if r, ok := t.d.(Ruler[C]); ok {
		return r.Rules(session.Of[C](s))
	}
	return nil, nil
}

func (t *typed[C]) released(ctx context.Context, s *session.Core, held []kernel.Held) error {
	if r, ok := t.d.(Releaser[C]); ok {
		return r.Released(ctx, session.Of[C](s), held)
	}
	return nil
}

func (t *typed[C]) inherits(ctx context.Context, s *session.Core) bool {
	h, ok := t.d.(Heir[C])
	return ok && h.VerifyReference(ctx, session.Of[C](s)) == nil
}

func (t *typed[C]) repairs() (ruler, restorer bool) {
	_, ruler = t.d.(Ruler[C])
	_, restorer = t.d.(Restorer[C])
	return ruler, restorer
}

func (t *typed[C]) deny(ctx context.Context, s *session.Core) (restored []string, err error) {
	return t.d.(Restorer[C]).Deny(ctx, session.Of[C](s))
}

func (t *typed[C]) allow(ctx context.Context, s *session.Core) (restored []string, err error) {
	return t.d.(Restorer[C]).Allow(ctx, session.Of[C](s))
}

func (t *typed[C]) move(ctx context.Context, s *session.Core, dryRun bool) ([]session.Move, error) {
	if m, ok := t.d.(Mover[C]); ok {
		return m.Move(ctx, session.Of[C](s), dryRun)
	}
	return nil, nil
}
