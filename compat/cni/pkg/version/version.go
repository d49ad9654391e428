package version

import (
	"github.com/containernetworking/cni/pkg/types"
	"io"
)

var All PluginInfo

var Legacy PluginInfo

type ConfigDecoder struct {
}

type ErrorIncompatible struct {
	Config    string
	Supported []string
}

type PluginDecoder struct {
}

type PluginInfo interface {
	Encode(io.Writer) error
	SupportedVersions() []string
}

type Reconciler struct {
}

func Current() string { panic("not implemented") }

func GreaterThan(version string, otherVersion string) (bool, error) { panic("not implemented") }

func GreaterThanOrEqualTo(version string, otherVersion string) (bool, error) {
	panic("not implemented")
}

func NewResult(version string, resultBytes []byte) (types.Result, error) { panic("not implemented") }

func ParsePrevResult(conf *types.PluginConf) error { panic("not implemented") }

func ParseVersion(version string) (int, int, int, error) { panic("not implemented") }

func PluginSupports(supportedVersions ...string) PluginInfo { panic("not implemented") }

func VersionsStartingFrom(minVer string) PluginInfo { panic("not implemented") }

func (r *ConfigDecoder) Decode(jsonBytes []byte) (string, error) { panic("not implemented") }

func (r *ErrorIncompatible) Details() string { panic("not implemented") }

func (r *ErrorIncompatible) Error() string { panic("not implemented") }

func (r *PluginDecoder) Decode(jsonBytes []byte) (PluginInfo, error) { panic("not implemented") }

func (r *Reconciler) Check(configVersion string, pluginInfo PluginInfo) *ErrorIncompatible {
	panic("not implemented")
}

func (r *Reconciler) CheckRaw(configVersion string, supportedVersions []string) *ErrorIncompatible {
	panic("not implemented")
}
