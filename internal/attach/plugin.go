package attach

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/plugin"
)

// Plugin makes a plugin.Plugin, with STATUS and GC, out of a Maker.
type Plugin[C any] struct {
	Maker   Maker[C]
	Kind    string                   // of rtnetlink, of the container's link: what CHECK expects, DEL deletes and STATUS asks for; "": any
	Options func(*C) Options         // nil: the zero Options
	Needs   func(*C) []probe.Feature // what else the kernel must have, STATUS says what it has not; nil: nothing
	DNS     DNS                      // whose the result has

	// Texts are the messages of CHECK in which the upstream plugin differs from others.
	Texts Texts

	// Inherits says that without IPAM the container's interface gets the addresses and routes of the previous result, if there
	// is one, and takes the place of the interfaces there.
	Inherits bool
}

// DNS says whose DNS a result has.
type DNS int

const (
	DNSOfAny           DNS = iota // that of the configuration; without, that of IPAM
	DNSOfConfiguration            // never that of IPAM
	DNSOfIPAM                     // never that of the configuration
)

// Add implements [plugin.Plugin].
func (p *Plugin[C]) Add(ctx context.Context, c *plugin.Call[C]) (*cni.Result, error) {
	return add(ctx, p, c.AnyCall)
}

// Del implements [plugin.Plugin].
func (p *Plugin[C]) Del(ctx context.Context, c *plugin.Call[C]) error { return del(ctx, p, c.AnyCall) }

// Check implements [plugin.Plugin].
func (p *Plugin[C]) Check(ctx context.Context, c *plugin.Call[C]) error {
	return check(ctx, p, c.AnyCall)
}

// Status implements [plugin.Statuser].
func (p *Plugin[C]) Status(ctx context.Context, c *plugin.Call[C]) error {
	return status(ctx, p, c.AnyCall)
}

// GC implements [plugin.Collector].
func (p *Plugin[C]) GC(ctx context.Context, c *plugin.Call[C]) error { return gc(ctx, p, c.AnyCall) }

// Repair implements [plugin.Repairer].
func (p *Plugin[C]) Repair(ctx context.Context, c *plugin.Call[C]) error {
	return repair(ctx, p, c.AnyCall)
}

// Validate implements [plugin.Validator].
func (p *Plugin[C]) Validate(c *plugin.Call[C]) error {
	if err := validate(c.AnyCall, p.Inherits); err != nil {
		return err
	}
	if v, ok := p.Maker.(Validator[C]); ok {
		return v.Validate(c)
	}
	return nil
}

// untyped is a Plugin that is called without the type of its configuration, so that the work is compiled once and not for
// each type. What the Maker does not implement does nothing.
type untyped interface {
	kind() string
	dns() DNS
	texts() Texts
	precheck(*Core) error
	inherits() bool
	options(*Core) Options
	needs(*plugin.AnyCall) []probe.Feature
	make(context.Context, *Core) ([]cni.Interface, error)
	verify(context.Context, *Core, kernel.Link) error
	status(context.Context, *plugin.AnyCall) error
	amend(*Core, *cni.Result) error
	route(*Core, kernel.Link, *cni.Result) error
	finish(context.Context, *Core, *cni.Result) error
	remove(*Core, Gone) error
	repair(*Core) error
	giveBack(*Core) (returner bool, err error)
}

func (*Plugin[C]) session(s *Core) *Session[C] { return &Session[C]{s, s.Config().(*C)} }

func (p *Plugin[C]) kind() string { return p.Kind }

func (p *Plugin[C]) dns() DNS { return p.DNS }

func (p *Plugin[C]) texts() Texts { return p.Texts.orDefault() }

func (p *Plugin[C]) precheck(s *Core) error {
	if m, ok := p.Maker.(Prechecker[C]); ok {
		return m.Precheck(p.session(s))
	}
	return nil
}

func (p *Plugin[C]) inherits() bool { return p.Inherits }

func (p *Plugin[C]) giveBack(s *Core) (returner bool, err error) {
	r, ok := p.Maker.(Returner[C])
	if ok {
		err = r.Return(p.session(s))
	}
	return ok, err
}

func (p *Plugin[C]) options(s *Core) Options {
	if p.Options == nil {
		return Options{}
	}
	return p.Options(s.Config().(*C))
}

func (p *Plugin[C]) needs(c *plugin.AnyCall) []probe.Feature {
	var list []probe.Feature
	if p.Kind != "" {
		list = append(list, probe.Feature(p.Kind))
	}
	if p.Needs != nil {
		list = append(list, p.Needs(c.Config().(*C))...)
	}
	return list
}

func (p *Plugin[C]) make(ctx context.Context, s *Core) ([]cni.Interface, error) {
	return p.Maker.Make(ctx, p.session(s))
}

func (p *Plugin[C]) verify(ctx context.Context, s *Core, link kernel.Link) error {
	return p.Maker.Verify(ctx, p.session(s), link)
}

func (p *Plugin[C]) status(ctx context.Context, c *plugin.AnyCall) error {
	m, ok := p.Maker.(Statuser[C])
	if !ok {
		return nil
	}
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return m.Status(p.session(s))
}

func (p *Plugin[C]) amend(s *Core, r *cni.Result) error {
	if a, ok := p.Maker.(Amender[C]); ok {
		return a.Amend(p.session(s), r)
	}
	return nil
}

func (p *Plugin[C]) route(s *Core, link kernel.Link, r *cni.Result) error {
	if m, ok := p.Maker.(Router[C]); ok {
		return m.Route(p.session(s), link, r)
	}
	return nil
}

func (p *Plugin[C]) finish(ctx context.Context, s *Core, r *cni.Result) error {
	if f, ok := p.Maker.(Finisher[C]); ok {
		return f.Finish(ctx, p.session(s), r)
	}
	return nil
}

func (p *Plugin[C]) remove(s *Core, g Gone) error {
	if r, ok := p.Maker.(Remover[C]); ok {
		return r.Remove(p.session(s), g)
	}
	return nil
}

func (p *Plugin[C]) repair(s *Core) error {
	if r, ok := p.Maker.(Repairer[C]); ok {
		return r.Repair(p.session(s))
	}
	return nil
}
