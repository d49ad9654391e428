package all

import (
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// Program is a plugin that is a program of its own, because its libraries would slow the start of
// all others. Its definition serves lint, documents and completion; this program cannot run it.
type Program struct {
	plugin.Definition
	Program string // file name of the binary, which is installed under the name of the plugin
}

// Programs are the plugins that are programs of their own, sorted by name.
var Programs = []Program{
	{Definition: ovs.Plugin, Program: "tenon-ovs"},
}

// FindProgram returns the plugin of that name in [Programs].
func FindProgram(name string) (Program, bool) {
	i := slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return Program{}, false
	}
	return Programs[i], true
}

// Find returns the definition of the plugin of that name in [Described], or nil.
func Find(name string) *plugin.Definition {
	list := Described()
	i := slices.IndexFunc(list, func(d plugin.Definition) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Described returns the definitions in [Plugins] and [Programs], sorted by name.
func Described() []plugin.Definition {
	list := slices.Clone(Plugins)
	for _, p := range Programs {
		list = append(list, p.Definition)
	}
	slices.SortFunc(list, func(a, b plugin.Definition) int { return strings.Compare(a.Name, b.Name) })
	return list
}
