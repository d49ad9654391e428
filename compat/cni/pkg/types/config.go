package types

import "github.com/containernetworking/cni/pkg/types/internal/ordered"

// NetConf is the former name of [PluginConf].
type NetConf = PluginConf

// PluginConf is the part of a plugin's configuration that all plugins share. A plugin usually
// embeds it in a struct with its own keys. Such a struct inherits the method MarshalJSON, which
// knows only the keys of PluginConf, so that a pointer to the struct is encoded without the
// plugin's own keys.
type PluginConf struct {
	CNIVersion string `json:"cniVersion,omitempty"`

	Name         string          `json:"name,omitempty"`
	Type         string          `json:"type,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	IPAM         IPAM            `json:"ipam,omitempty"`
	DNS          DNS             `json:"dns,omitempty"`

	// RawPrevResult is the previous result as decoded JSON. version.ParsePrevResult moves it to
	// PrevResult, which is never encoded.
	RawPrevResult map[string]interface{} `json:"prevResult,omitempty"`
	PrevResult    Result                 `json:"-"`

	// ValidAttachments are the attachments that GC must keep.
	ValidAttachments []GCAttachment `json:"cni.dev/valid-attachments,omitempty"`
}

// MarshalJSON encodes n with sorted keys and without an empty dns object. It keeps an empty ipam
// object. It returns errors of encoding/json.
func (n *PluginConf) MarshalJSON() ([]byte, error) {
	type plain PluginConf
	return ordered.Marshal((*plain)(n))
}

// GCAttachment is the key of an attachment in the list of valid attachments of GC.
type GCAttachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// IPAM is the part of an IPAM configuration that all IPAM plugins share.
type IPAM struct {
	Type string `json:"type,omitempty"`
}

// IsEmpty reports whether i names no IPAM plugin.
func (i *IPAM) IsEmpty() bool { return i.Type == "" }

// NetConfList is a network configuration list.
type NetConfList struct {
	CNIVersion string `json:"cniVersion,omitempty"`

	Name         string        `json:"name,omitempty"`
	DisableCheck bool          `json:"disableCheck,omitempty"`
	DisableGC    bool          `json:"disableGC,omitempty"`
	Plugins      []*PluginConf `json:"plugins,omitempty"`
}
