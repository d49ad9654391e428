package plugin

import (
	"reflect"

	"github.com/tenon-cni/tenon/cni"
)

// Define describes a plugin. new returns an empty configuration of it, into which each call is
// decoded.
func Define(i Info, new func() Plugin) Definition {
	return DefineFlow(i, func() (Configuration, Plugin) {
		p := new()
		return p, p
	})
}

// DefineFlow is Define for a plugin that carries out the calls of a configuration of another type.
// new returns an empty configuration and the plugin that holds it. The configuration may be a
// [Statuser], a [Validator] or an [Advisor] in the place of the plugin.
func DefineFlow(i Info, new func() (Configuration, Plugin)) Definition {
	if i.Versions == nil {
		i.Versions = cni.Versions()
	}
	return Definition{Info: i, new: new}
}

// Definition is a plugin with its description: bytes in, bytes out. [Define] makes one.
type Definition struct {
	Info
	new   func() (Configuration, Plugin)
	watch func(op string) error // becomes [Call.Watch]
}

// Watched returns a copy of d. Each of its calls has watch as [Call.Watch].
func (d Definition) Watched(watch func(op string) error) Definition {
	d.watch = watch
	return d
}

// configType returns the type of the configurations.
func (d Definition) configType() reflect.Type {
	conf, _ := d.new()
	return reflect.TypeOf(conf).Elem()
}
