package plugin

import (
	"io"
	"maps"
	"slices"

	"github.com/tenon-cni/tenon/invoke"
)

// Caller returns a caller that calls the plugins defs in this process wherever CNI_PATH leads to the running
// executable, and executes everything else. Delegates of a plugin go through the same caller. exec makes it execute
// always.
func Caller(defs []Definition, exec bool) invoke.Caller {
	return newCaller(defs, invoke.Auto{Local: invoke.Local{}, AlwaysExec: exec})
}

func newCaller(defs []Definition, auto invoke.Auto) caller {
	c := caller{auto, definitions{}}
	for _, d := range defs {
		c.Local[d.Name], c.definitions[d.Name] = d.Handler(c), d
	}
	return c
}

// WithStderr returns a caller whose plugin processes, also those of delegates, write standard error to w.
func (c caller) WithStderr(w io.Writer) invoke.Caller {
	defs := slices.Collect(maps.Values(c.definitions))
	return newCaller(defs, invoke.Auto{Local: invoke.Local{}, AlwaysExec: c.AlwaysExec, Process: invoke.Process{Stderr: w}})
}

// caller calls the plugins that it knows.
type caller struct {
	invoke.Auto
	definitions
}

// definitions are plugins by name.
type definitions map[string]Definition

func (d definitions) definition(typ string) (Definition, bool) {
	found, ok := d[typ]
	return found, ok
}
