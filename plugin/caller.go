package plugin

import "github.com/tenon-cni/tenon/invoke"

// Caller returns a caller that calls the plugins defs in this process wherever CNI_PATH leads to the running
// executable, and executes everything else. Delegates of a plugin go through the same caller. exec makes it execute
// always.
func Caller(defs []Definition, exec bool) invoke.Caller {
	auto := invoke.Auto{Local: invoke.Local{}, AlwaysExec: exec}
	for _, d := range defs {
		auto.Local[d.Name] = d.Handler(auto)
	}
	return auto
}
