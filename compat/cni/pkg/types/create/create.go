// Package create decodes results of all versions. Programs that import it can also convert every
// result to every version.
package create

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	_ "github.com/containernetworking/cni/pkg/types/020" // decodes 0.1.0 and 0.2.0
	_ "github.com/containernetworking/cni/pkg/types/040" // decodes 0.3.0 to 0.4.0
	_ "github.com/containernetworking/cni/pkg/types/100" // decodes 1.0.0 and 1.1.0
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

// DecodeVersion returns the cniVersion of a network configuration or a result, and 0.1.0 if it is
// absent or empty. It wraps errors of encoding/json.
func DecodeVersion(jsonBytes []byte) (string, error) {
	var conf struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(jsonBytes, &conf); err != nil {
		return "", fmt.Errorf("decoding version from network config: %w", err)
	}
	if conf.CNIVersion == "" {
		return "0.1.0", nil
	}
	return conf.CNIVersion, nil
}

// Create decodes a result by the rules of a version; the empty version means 0.1.0. The version in
// the JSON may differ, as long as its results have the same Go type. It returns an error for an
// unknown version.
func Create(version string, bytes []byte) (types.Result, error) {
	return results.Decode(version, bytes)
}

// CreateFromBytes decodes a result by the rules of its own version, see [DecodeVersion] and
// [Create].
func CreateFromBytes(bytes []byte) (types.Result, error) {
	version, err := DecodeVersion(bytes)
	if err != nil {
		return nil, err
	}
	return results.Decode(version, bytes)
}
