package chained

import (
	"cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Traits are the static properties of a plugin.
type Traits struct {
	Inside bool // it works in the container's namespace too

	// Contained says that it works in the container's namespace alone, with which everything it
	// made ends. The flow calls Apply and Remove with the lock of the namespace, and calls Remove
	// only while the namespace exists. It implies Inside.
	Contained bool

	NoPrev   NoPrev
	RuleSets []*kernel.RuleSet // of the entries of a [Ruler]: where DEL and GC look for them

	// Holds returns an entry that is there if an owner, by its tag, has any: then DEL of an attachment that has none takes
	// one question. nil: there is none.
	Holds func(tag string) kernel.Element
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

// Define describes a plugin. new returns an empty configuration of it.
func Define(i plugin.Info, t Traits, new func() Decorator) plugin.Definition {
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		d := new()
		return d, &Plugin{d, t}
	})
}

// Plugin makes a [plugin.Plugin] of a Decorator.
type Plugin struct {
	Decorator
	Traits
}
