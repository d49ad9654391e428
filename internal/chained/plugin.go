package chained

import (
	"cmp"
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Plugin makes a plugin.Plugin, with STATUS and GC, out of a Decorator.
type Plugin[C any] struct {
	Decorator Decorator[C]
	Inside    bool // it works in the container's namespace too
	NoPrev    NoPrev
	Concerns  []*kernel.Concern // of the entries of a [Ruler]: where DEL and GC look for them

	// Holds returns an entry that is there if an owner, by its tag, has any: then DEL of an attachment that has none takes
	// one question. nil: there is none.
	Holds func(tag string) kernel.Entry

	Needs func(*C) []probe.Feature // what the kernel must have, STATUS says what it has not; nil: nothing
}

// NoPrev are the messages of ADD and CHECK without a previous result, in the words of the upstream plugin. Check is Add where
// it is empty, and Add "must be called as chained plugin".
type NoPrev struct{ Add, Check string }

func (n NoPrev) text(verb cni.Command) string {
	if verb == cni.Check && n.Check != "" {
		return n.Check
	}
	return cmp.Or(n.Add, "must be called as chained plugin")
}

// Add implements [plugin.Plugin].
func (p *Plugin[C]) Add(ctx context.Context, c *plugin.Call[C]) (*cni.Result, error) {
	return p.untyped().add(ctx, c.AnyCall)
}

// Del implements [plugin.Plugin].
func (p *Plugin[C]) Del(ctx context.Context, c *plugin.Call[C]) error {
	return p.untyped().del(ctx, c.AnyCall)
}

// Check implements [plugin.Plugin].
func (p *Plugin[C]) Check(ctx context.Context, c *plugin.Call[C]) error {
	return p.untyped().check(ctx, c.AnyCall)
}

// GC implements [plugin.Collector].
func (p *Plugin[C]) GC(ctx context.Context, c *plugin.Call[C]) error {
	return p.untyped().gc(ctx, c.AnyCall)
}

// Repair implements [plugin.Repairer].
func (p *Plugin[C]) Repair(ctx context.Context, c *plugin.Call[C]) error {
	return p.untyped().repair(ctx, c.AnyCall)
}

// Validate implements [plugin.Validator].
func (p *Plugin[C]) Validate(c *plugin.Call[C]) error {
	if v, ok := p.Decorator.(Validator[C]); ok {
		return v.Validate(c)
	}
	return nil
}

// Status says what the kernel lacks, then what the Decorator knows.
func (p *Plugin[C]) Status(ctx context.Context, c *plugin.Call[C]) error {
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

// Advise implements [plugin.Advisor].
func (p *Plugin[C]) Advise(ctx context.Context, c *plugin.Call[C]) ([]string, error) {
	if a, ok := p.Decorator.(plugin.Advisor[C]); ok {
		return a.Advise(ctx, c)
	}
	return nil, nil
}

func (p *Plugin[C]) untyped() untyped {
	return untyped{&typed[C]{p.Decorator}, p.Inside, p.NoPrev, p.Concerns, p.Holds}
}
