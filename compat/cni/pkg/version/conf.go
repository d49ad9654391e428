package version

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
)

// ConfigDecoder decodes the version of network configurations. The zero value is ready to use.
type ConfigDecoder struct{}

// Decode returns the cniVersion of a network configuration, and 0.1.0 if it is absent or empty. It
// does not check the value. It wraps errors of encoding/json.
func (*ConfigDecoder) Decode(jsonBytes []byte) (string, error) {
	return create.DecodeVersion(jsonBytes)
}

// NewResult decodes a result by the rules of a version, see create.Create.
func NewResult(version string, resultBytes []byte) (types.Result, error) {
	return create.Create(version, resultBytes)
}

// ParsePrevResult decodes conf.RawPrevResult into conf.PrevResult, by the rules of conf.CNIVersion,
// and sets RawPrevResult to nil. A previous result without version gets the version of conf.
// ParsePrevResult changes nothing if conf has no RawPrevResult. If decoding fails, conf loses its
// RawPrevResult and keeps its PrevResult. The error wraps an error of [NewResult].
func ParsePrevResult(conf *types.PluginConf) error {
	if conf.RawPrevResult == nil {
		return nil
	}
	raw := conf.RawPrevResult
	if !hasVersion(raw) {
		raw = maps.Clone(raw)
		raw["cniVersion"] = conf.CNIVersion
	}
	data, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("could not serialize prevResult: %w", err)
	}
	conf.RawPrevResult = nil
	result, err := create.Create(conf.CNIVersion, data)
	if err != nil {
		return fmt.Errorf("could not parse prevResult: %w", err)
	}
	conf.PrevResult = result
	return nil
}

// hasVersion reports whether a decoded object has a cniVersion. Its key matches in any case, as it
// does when encoding/json decodes a result, and null counts as absent.
func hasVersion(object map[string]interface{}) bool {
	for key, value := range object {
		if strings.EqualFold(key, "cniVersion") && value != nil {
			return true
		}
	}
	return false
}
