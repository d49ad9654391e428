package plugin

import (
	"reflect"

	"github.com/tenon-cni/tenon/cni"
)

// Define describes a plugin. new returns an empty configuration, into which each call is decoded.
func Define(i Info, new func() Plugin) Definition {
	return DefineFlow(i, func() (Configuration, Plugin) {
		p := new()
		return p, p
	})
}

// DefineFlow is Define for a plugin with a separate configuration type. new returns an empty
// configuration and the plugin that holds it. The configuration may implement [Statuser],
// [Validator] or [Advisor] if the plugin does not.
func DefineFlow(i Info, new func() (Configuration, Plugin)) Definition {
	if i.Versions == nil {
		i.Versions = cni.Versions()
	}
	return Definition{Info: i, new: new}
}

// Definition is a plugin with its description. [Define] creates it.
type Definition struct {
	Info
	new   func() (Configuration, Plugin)
	file  string                // name of the file that was called, if [Select] found it
	watch func(op string) error // see [Call.Watch]
}

// Watched returns a copy of d that sets [Call.Watch] to watch in each call.
func (d Definition) Watched(watch func(op string) error) Definition {
	d.watch = watch
	return d
}

// configType returns the type of the plugin's configuration.
func (d Definition) configType() reflect.Type {
	conf, _ := d.new()
	return reflect.TypeOf(conf).Elem()
}
