// Package chained is what all plugins have in common that work on the result of the plugins before them: namespaces,
// roll-back, finding again what belongs to an attachment, CHECK, STATUS and GC. A plugin says what it adds to an
// attachment ([Decorator]); everything else happens here, once.
//
// It makes no container interface and gives no address: that is what the plugins before have done.
package chained

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Decorator is the part of a chained plugin that differs from one to the next.
type Decorator[C any] interface {
	// Apply makes the changes, in the transaction of the session. The result is a copy of the one before, which it may
	// amend; it becomes the plugin's own.
	Apply(context.Context, *Session[C], *cni.Result) error

	// Verify compares what Apply makes for the configuration with what is there, and changes nothing.
	Verify(context.Context, *Session[C]) error

	// Remove takes away what Apply has made for attachments that are gone. It needs nothing but their keys: Sandbox and
	// Prev may be nil, and the configuration is what could be read of it. It goes on past errors.
	Remove(context.Context, *Session[C], Gone) error
}

// Validator is a Decorator that checks its configuration; see [plugin.Validator].
type Validator[C any] interface {
	Validate(*plugin.Call[C]) error
}

// Statuser is a Decorator that knows more about whether ADD would work than [Plugin.Needs]; see [plugin.Statuser].
type Statuser[C any] interface {
	Status(context.Context, *plugin.Call[C]) error
}

// Session is one call in progress. Sandbox is nil unless the plugin is [Plugin.Inside], and on DEL where the container's
// namespace is gone. On ADD and CHECK Prev is there.
type Session[C any] = session.Session[C]

// Gone is what DEL and GC have to remove.
type Gone = session.Gone

// add applies the Decorator to the result of the plugins before. What it has changed is taken back if it fails.
func (p untyped) add(ctx context.Context, c *plugin.AnyCall) (*cni.Result, error) {
	s, err := p.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer s.Tx.Rollback() // for a panic: after a return there is nothing left to take back
	r := c.Prev.Clone()
	if err := p.decorate(ctx, s, r); err != nil {
		return nil, errors.Join(err, s.Tx.Rollback())
	}
	s.Tx.Keep()
	return r, nil
}

func (p untyped) decorate(ctx context.Context, s *session.Core, r *cni.Result) error {
	if err := p.claim(s); err != nil {
		return err
	}
	return p.apply(ctx, s, r)
}

// check compares what is there with what ADD makes.
func (p untyped) check(ctx context.Context, c *plugin.AnyCall) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := p.verifyRules(ctx, s); err != nil {
		return err
	}
	return p.verify(ctx, s)
}

// open starts a session for ADD or CHECK, in both namespaces.
func (p untyped) open(ctx context.Context, c *plugin.AnyCall) (*session.Core, error) {
	if c.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%s", p.noPrev.text(c.Command)).
			WithDetails("no prevResult: " + c.Type + " belongs behind a plugin that makes an interface, such as bridge, in the plugins of a network")
	}
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if p.inside {
		if err := s.Enter(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// del removes what there is of the attachment.
func (p untyped) del(ctx context.Context, c *plugin.AnyCall) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	var entered error
	if p.inside {
		entered = s.EnterIfThere()
	}
	return errors.Join(entered, p.clean(ctx, s, session.GoneOne(c.Attachment())))
}

// gc removes what attachments of this network have left that are not valid any more.
func (p untyped) gc(ctx context.Context, c *plugin.AnyCall) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return p.clean(ctx, s, session.GoneBut(c.Name, c.Valid))
}

func (p untyped) clean(ctx context.Context, s *session.Core, gone session.Gone) error {
	return errors.Join(p.release(ctx, s, gone), p.remove(ctx, s, gone))
}
