package version

import (
	"fmt"
	"slices"
)

// ErrorIncompatible is the error for a configuration in a version that the plugin does not support.
type ErrorIncompatible struct {
	Config    string   // the version of the configuration
	Supported []string // the versions that the plugin supports
}

// Details returns both sides without the introduction of [ErrorIncompatible.Error].
func (e *ErrorIncompatible) Details() string {
	return fmt.Sprintf("config is %q, plugin supports %q", e.Config, e.Supported)
}

// Error returns the message of e.
func (e *ErrorIncompatible) Error() string { return "incompatible CNI versions: " + e.Details() }

// Reconciler checks whether plugins support versions. The zero value is ready to use.
type Reconciler struct{}

// Check returns an error if the plugin does not support the version of the configuration.
func (r *Reconciler) Check(configVersion string, pluginInfo PluginInfo) *ErrorIncompatible {
	return r.CheckRaw(configVersion, pluginInfo.SupportedVersions())
}

// CheckRaw returns an error if configVersion is not in the list. It compares texts: "1.0" and the
// empty version are not equal to "1.0.0" and "0.1.0".
func (*Reconciler) CheckRaw(configVersion string, supportedVersions []string) *ErrorIncompatible {
	if slices.Contains(supportedVersions, configVersion) {
		return nil
	}
	return &ErrorIncompatible{Config: configVersion, Supported: supportedVersions}
}
