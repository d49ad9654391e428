package plugin

import "github.com/tenon-cni/tenon/invoke"

// Caller returns a caller that calls the plugins defs in this process wherever CNI_PATH leads to the running
// executable, and executes everything else. Delegates of a plugin go through the same caller. exec makes it execute
// always.
func Caller(defs []Definition, exec bool) invoke.Caller {
	c := caller{invoke.Auto{Local: invoke.Local{}, AlwaysExec: exec}, definitions{}}
	for _, d := range defs {
		c.Local[d.Name], c.definitions[d.Name] = d.Handler(c), d
	}
	return c
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
