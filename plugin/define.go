package plugin

import (
	"context"
	"reflect"

	"github.com/tenon-cni/tenon/cni"
)

// Define ties an implementation to its description.
func Define[C any, PC configuration[C]](i Info, p Plugin[C]) Definition {
	if i.Versions == nil {
		i.Versions = cni.Versions()
	}
	return Definition{Info: i, config: reflect.TypeFor[C](), plugin: &typed[C, PC]{p}}
}

// configuration is a pointer to a configuration type, which embeds [Common].
type configuration[C any] interface {
	*C
	common() *Common
}

// untyped is a Plugin that is called without the type of its configuration, so that what serves it is compiled once and
// not for each type. What the Plugin does not implement does nothing.
type untyped interface {
	configuration() (conf any, common *Common) // a new one
	validate(*AnyCall) error
	add(context.Context, *AnyCall) (*cni.Result, error)
	del(context.Context, *AnyCall) error
	check(context.Context, *AnyCall) error
	status(context.Context, *AnyCall) error
	gc(context.Context, *AnyCall) error
	advise(context.Context, *AnyCall) ([]string, error)
	repairs() bool
	repair(context.Context, *AnyCall) error
}

// typed gives the calls of an untyped their type.
type typed[C any, PC configuration[C]] struct{ p Plugin[C] }

func (t *typed[C, PC]) call(c *AnyCall) *Call[C] { return &Call[C]{AnyCall: c, Conf: c.conf.(*C)} }

func (t *typed[C, PC]) configuration() (conf any, common *Common) {
	c := new(C)
	return c, PC(c).common()
}

func (t *typed[C, PC]) validate(c *AnyCall) error {
	if v, ok := t.p.(Validator[C]); ok {
		return v.Validate(t.call(c))
	}
	return nil
}

func (t *typed[C, PC]) add(ctx context.Context, c *AnyCall) (*cni.Result, error) {
	return t.p.Add(ctx, t.call(c))
}

func (t *typed[C, PC]) del(ctx context.Context, c *AnyCall) error { return t.p.Del(ctx, t.call(c)) }

func (t *typed[C, PC]) check(ctx context.Context, c *AnyCall) error { return t.p.Check(ctx, t.call(c)) }

func (t *typed[C, PC]) status(ctx context.Context, c *AnyCall) error {
	if s, ok := t.p.(Statuser[C]); ok {
		return s.Status(ctx, t.call(c))
	}
	return nil
}

func (t *typed[C, PC]) gc(ctx context.Context, c *AnyCall) error {
	if g, ok := t.p.(Collector[C]); ok {
		return g.GC(ctx, t.call(c))
	}
	return nil
}

func (t *typed[C, PC]) advise(ctx context.Context, c *AnyCall) ([]string, error) {
	if a, ok := t.p.(Advisor[C]); ok {
		return a.Advise(ctx, t.call(c))
	}
	return nil, nil
}

func (t *typed[C, PC]) repairs() bool {
	_, ok := t.p.(Repairer[C])
	return ok
}

func (t *typed[C, PC]) repair(ctx context.Context, c *AnyCall) error {
	return t.p.(Repairer[C]).Repair(ctx, t.call(c))
}
