package linux

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/plugin"
)

// Decorator is the configuration of a chained plugin: a pointer to a struct that embeds
// [plugin.Common]. It may also be a [plugin.Validator], a [plugin.Statuser] and a [Ruler].
type Decorator interface {
	plugin.Configuration

	// Apply makes the changes. r is a copy of s.Prev, which Apply may amend; it becomes the result
	// of the plugin. A second Apply for the same attachment succeeds and changes nothing.
	Apply(ctx context.Context, s *Session, r *cni.Result) error

	// Verify returns an error that names the first difference from the state that Apply made. It
	// changes nothing.
	Verify(ctx context.Context, s *Session) error

	// Remover removes everything that Apply made.
	Remover
}

// DefineChained describes a plugin that changes the result of the plugins before it. new returns
// an empty configuration. The role is [plugin.RoleChained]. ruleSets are the rule sets of a
// [Ruler]; DefineChained panics if one is invalid, or if two have the same name.
func DefineChained(i plugin.Info, new func() Decorator, ruleSets ...RuleSet) plugin.Definition {
	i.Role = plugin.RoleChained
	declared := declare(ruleSets)
	traits := chained.Traits{Inside: true}
	for _, set := range ruleSets {
		traits.RuleSets = append(traits.RuleSets, declared[set.Name])
	}
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		conf := new()
		var d chained.Decorator = decorator{conf}
		if r, ok := conf.(Ruler); ok {
			d = ruler{decorator{conf}, r, declared}
		}
		return conf, &chained.Plugin{Decorator: d, Traits: traits}
	})
}

// decorator is a [Decorator] in the terms of the flow.
type decorator struct{ Decorator }

func (d decorator) Apply(ctx context.Context, s *chained.Session, r *cni.Result) error {
	return d.Decorator.Apply(ctx, newSession(s), r)
}

func (d decorator) Verify(ctx context.Context, s *chained.Session) error {
	return d.Decorator.Verify(ctx, newSession(s))
}

func (d decorator) Remove(ctx context.Context, s *chained.Session, gone chained.Gone) error {
	return d.Decorator.Remove(ctx, newSession(s), Gone{gone})
}
