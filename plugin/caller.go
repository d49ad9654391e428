package plugin

import "github.com/tenon-cni/tenon/invoke"

// Caller returns a caller that runs the plugins in defs in this process if CNI_PATH leads to the
// running binary, and executes all other plugins. Delegates of a plugin use the same caller. If
// exec is set, it executes every plugin.
func Caller(defs []Definition, exec bool) invoke.Caller {
	c := caller{invoke.Auto{Local: invoke.Local{}, AlwaysExec: exec}, definitions{}}
	for _, d := range defs {
		c.Local[d.Name], c.definitions[d.Name] = d.Handler(c), d
	}
	return c
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
