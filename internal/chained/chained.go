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
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
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

// Plugin makes a plugin.Plugin, with STATUS and GC, out of a Decorator.
type Plugin[C any] struct {
	Decorator Decorator[C]
	Inside    bool              // it works in the container's namespace too
	Concerns  []*kernel.Concern // of the entries of a [Ruler]: where DEL and GC look for them

	// Holds returns an entry that is there if an owner, by its tag, has any: then DEL of an attachment that has none takes
	// one question. nil: there is none.
	Holds func(tag string) kernel.Entry

	Needs func(*C) []probe.Feature // what the kernel must have, STATUS says what it has not; nil: nothing
}

// Validate implements [plugin.Validator].
func (p Plugin[C]) Validate(c *plugin.Call[C]) error {
	if v, ok := p.Decorator.(Validator[C]); ok {
		return v.Validate(c)
	}
	return nil
}

// Add applies the Decorator to the result of the plugins before. What it has changed is taken back if it fails.
func (p Plugin[C]) Add(ctx context.Context, c *plugin.Call[C]) (*cni.Result, error) {
	s, err := p.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer s.Tx.Rollback() // for a panic: after a return there is nothing left to take back
	r := c.Prev.Clone()
	if err := p.add(ctx, s, r); err != nil {
		return nil, errors.Join(err, s.Tx.Rollback())
	}
	s.Tx.Keep()
	return r, nil
}

func (p Plugin[C]) add(ctx context.Context, s *Session[C], r *cni.Result) error {
	if err := p.claim(s); err != nil {
		return err
	}
	return p.Decorator.Apply(ctx, s, r)
}

// Check compares what is there with what Add makes.
func (p Plugin[C]) Check(ctx context.Context, c *plugin.Call[C]) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := p.verifyRules(s); err != nil {
		return err
	}
	return p.Decorator.Verify(ctx, s)
}

// open starts a session for ADD or CHECK, in both namespaces.
func (p Plugin[C]) open(ctx context.Context, c *plugin.Call[C]) (*Session[C], error) {
	if c.Prev == nil || c.Version < cni.V030 { // before 0.3.0 there are no chains
		return nil, cni.Errorf(cni.CodeInvalidConfig, "no prevResult: %s must be called as chained plugin", c.Type).
			WithDetails("it belongs behind a plugin that makes an interface, such as bridge, in the plugins of a network")
	}
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if p.Inside {
		if err := s.Enter(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Del removes what there is of the attachment.
func (p Plugin[C]) Del(ctx context.Context, c *plugin.Call[C]) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	var entered error
	if p.Inside {
		entered = s.EnterIfThere()
	}
	return errors.Join(entered, p.remove(ctx, s, session.GoneOne(c.Attachment())))
}

// GC removes what attachments of this network have left that are not valid any more.
func (p Plugin[C]) GC(ctx context.Context, c *plugin.Call[C]) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return p.remove(ctx, s, session.GoneBut(c.Name, c.Valid))
}

func (p Plugin[C]) remove(ctx context.Context, s *Session[C], gone session.Gone) error {
	return errors.Join(p.release(ctx, s, gone), p.Decorator.Remove(ctx, s, gone))
}

// Status says what the kernel lacks, then what the Decorator knows.
func (p Plugin[C]) Status(ctx context.Context, c *plugin.Call[C]) error {
	if p.Needs != nil {
		if err := session.Lacking(p.Needs(c.Conf)...); err != nil {
			return err
		}
	}
	if st, ok := p.Decorator.(Statuser[C]); ok {
		return st.Status(ctx, c)
	}
	return nil
}
