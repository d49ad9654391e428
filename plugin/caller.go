package plugin

import (
	"io"
	"maps"
	"slices"

	"github.com/tenon-cni/tenon/invoke"
)

// Caller returns a caller that runs the plugins in defs in this process if CNI_PATH leads to the
// running binary, and executes all other plugins. Delegates of a plugin use the same caller. If
// exec is set, it executes every plugin.
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

// WithStderr returns a caller whose plugin processes, also those of delegates, write standard error
// to w.
func (c caller) WithStderr(w io.Writer) invoke.Caller {
	defs := slices.Collect(maps.Values(c.definitions))
	return newCaller(defs, invoke.Auto{Local: invoke.Local{}, AlwaysExec: c.AlwaysExec, Process: invoke.Process{Stderr: w}})
}

// caller runs the plugins that it has definitions of in this process.
type caller struct {
	invoke.Auto
	definitions
}

// definitions holds plugins by name.
type definitions map[string]Definition

func (d definitions) definition(typ string) (Definition, bool) {
	found, ok := d[typ]
	return found, ok
}
