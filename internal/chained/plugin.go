package chained

import (
	"cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Traits are the static properties of a plugin.
type Traits struct {
	Inside bool // the plugin also works in the container's namespace

	// Contained means that the plugin works only in the container's namespace, so that all its
	// changes end with the namespace. The flow calls Apply and Remove with the lock of the
	// namespace, and calls Remove only while the namespace exists. It implies Inside.
	Contained bool

	NoPrev   NoPrev
	RuleSets []*kernel.RuleSet // of the elements of a [Ruler], for DEL and GC

	// Holds returns an element that exists if the owner with that tag has any. DEL of an attachment
	// without elements then takes one lookup. nil means that there is no such element.
	Holds func(tag string) kernel.Element
}

// NoPrev contains the upstream plugin's messages for ADD and CHECK without a previous result. An
// empty Check defaults to Add, and an empty Add to "must be called as chained plugin".
type NoPrev struct{ Add, Check string }

func (n NoPrev) text(verb cni.Command) string {
	if verb == cni.Check && n.Check != "" {
		return n.Check
	}
	return cmp.Or(n.Add, "must be called as chained plugin")
}

// Define returns the definition of a plugin. new returns an empty configuration of it.
func Define(i plugin.Info, t Traits, new func() Decorator) plugin.Definition {
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		d := new()
		return d, &Plugin{d, t}
	})
}

// Plugin implements [plugin.Plugin] for a Decorator.
type Plugin struct {
	Decorator
	Traits
}
