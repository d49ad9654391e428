// Package chained implements the flow that all chained plugins share: namespaces, rollback, finding
// the objects of an attachment, CHECK, STATUS and GC. A plugin implements [Decorator]: its
// additions to an attachment.
//
// The package creates no container interface and allocates no address, because earlier plugins have
// done so.
package chained

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Decorator is the configuration of a chained plugin, with the part of its work that differs
// between plugins. It may also implement [plugin.Validator], [plugin.Statuser], [plugin.Advisor]
// and [Ruler].
type Decorator interface {
	plugin.Configuration

	// Apply makes the changes, in the transaction of the session. It may amend the result, a copy
	// of the previous one, which becomes the result of the plugin.
	Apply(context.Context, *Session, *cni.Result) error

	// Verify checks that the changes of Apply are in place, and changes nothing.
	Verify(context.Context, *Session) error

	// Remove removes the changes of Apply for attachments that no longer exist. It needs only their
	// keys: Sandbox and Prev may be nil, and the configuration contains only the keys that could be
	// decoded. It continues past errors.
	Remove(context.Context, *Session, Gone) error
}

// Session is one call in progress. Sandbox is nil unless the plugin is [Traits.Inside], and on DEL
// if the container's namespace no longer exists. On ADD and CHECK, Prev is not nil.
type Session = session.Session

// Gone selects attachments that no longer exist, for DEL and GC.
type Gone = session.Gone

// Add implements [plugin.Plugin]. It applies the Decorator to the previous result. If that fails,
// Add rolls back all changes.
func (p *Plugin) Add(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	s, err := p.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := c.Prev.Clone()
	if err := s.Change(func() error { return p.decorate(ctx, s, r) }); err != nil {
		return nil, err
	}
	return r, nil
}

func (p *Plugin) decorate(ctx context.Context, s *Session, r *cni.Result) error {
	if err := p.applyRules(s); err != nil {
		return err
	}
	if err := p.lock(ctx, s); err != nil {
		return err
	}
	return p.Apply(ctx, s, r)
}

// lock locks the container's namespace for a plugin that is [Traits.Contained].
func (p *Plugin) lock(ctx context.Context, s *Session) error {
	if !p.Contained {
		return nil
	}
	return s.Sandbox.Lock(ctx)
}

// Check implements [plugin.Plugin]. It compares the host with the changes that ADD makes.
func (p *Plugin) Check(ctx context.Context, c *plugin.Call) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := p.verifyRules(ctx, s); err != nil {
		return err
	}
	return p.Verify(ctx, s)
}

// open starts a session for ADD or CHECK, in both namespaces.
func (p *Plugin) open(ctx context.Context, c *plugin.Call) (*Session, error) {
	if c.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%s", p.NoPrev.text(c.Command)).
			WithDetails("no prevResult: " + c.Type + " must follow a plugin that creates an interface, such as bridge, in the network's plugins")
	}
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if p.Inside || p.Contained {
		if err := s.Enter(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Del implements [plugin.Plugin]. It removes all objects of the attachment.
func (p *Plugin) Del(ctx context.Context, c *plugin.Call) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	var entered error
	if p.Inside || p.Contained {
		entered = s.EnterIfThere()
	}
	return errors.Join(entered, p.clean(ctx, s, session.GoneOne(c.Attachment())))
}

// GC implements [plugin.Collector]. It removes the objects of attachments of this network that are
// no longer valid.
func (p *Plugin) GC(ctx context.Context, c *plugin.Call) error {
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return p.clean(ctx, s, session.GoneBut(c.Name, c.Valid))
}

func (p *Plugin) clean(ctx context.Context, s *Session, gone Gone) error {
	err := p.release(ctx, s, gone)
	if p.Contained && s.Sandbox == nil {
		return err
	}
	if locked := p.lock(ctx, s); locked != nil {
		return errors.Join(err, locked)
	}
	return errors.Join(err, p.Remove(ctx, s, gone))
}
