package version

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tenon-cni/tenon/cni"
)

// PluginInfo is a plugin's reply to VERSION.
type PluginInfo interface {
	// SupportedVersions returns the versions that the plugin supports, in its order.
	SupportedVersions() []string

	// Encode writes the reply as one line of JSON.
	Encode(io.Writer) error
}

// pluginInfo is the reply as JSON.
type pluginInfo struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions,omitempty"`
}

// PluginSupports returns the reply of a plugin that supports the given versions. It panics if there
// are none.
func PluginSupports(supportedVersions ...string) PluginInfo {
	if len(supportedVersions) == 0 {
		panic("programmer error: you must support at least one version")
	}
	return &pluginInfo{CNIVersion: Current(), Supported: slices.Clone(supportedVersions)}
}

// SupportedVersions implements [PluginInfo].
func (p *pluginInfo) SupportedVersions() []string { return slices.Clone(p.Supported) }

// Encode implements [PluginInfo].
func (p *pluginInfo) Encode(w io.Writer) error {
	reply := cni.VersionReply{CNIVersion: p.CNIVersion, Supported: p.Supported}
	_, err := w.Write(append(reply.Encode(), '\n'))
	return err
}

// PluginDecoder decodes replies to VERSION. The zero value is ready to use.
type PluginDecoder struct{}

// Decode decodes a reply. A reply of version 0.2.0 without a list of supported versions means 0.1.0
// and 0.2.0, because the first plugins of that version replied so. Decode does not check that the
// entries are versions. It returns an error if a key is missing or empty.
func (*PluginDecoder) Decode(jsonBytes []byte) (PluginInfo, error) {
	var info pluginInfo
	if err := json.Unmarshal(jsonBytes, &info); err != nil {
		return nil, fmt.Errorf("decoding version info: %w", err)
	}
	if info.CNIVersion == "" {
		return nil, errors.New("decoding version info: missing field cniVersion")
	}
	if len(info.Supported) > 0 {
		return &info, nil
	}
	if info.CNIVersion == cni.V020.String() {
		return Legacy, nil
	}
	return nil, errors.New("decoding version info: missing field supportedVersions")
}
