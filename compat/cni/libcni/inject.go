package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// InjectConf returns a copy of a configuration with some keys set to new values, which may be of
// any type that encoding/json encodes. The other keys stay as they are. It returns an error if the
// bytes of the configuration are not a JSON object, a key is empty, a value is nil or cannot be
// encoded, or the new configuration cannot be parsed.
func InjectConf(original *PluginConfig, newValues map[string]interface{}) (*PluginConfig, error) {
	if original == nil {
		return nil, errNoPlugin
	}
	config, err := decodeObject(original.Bytes)
	if err == nil && config == nil {
		err = errors.New("the configuration is null")
	}
	if err != nil {
		return nil, fmt.Errorf("unmarshal existing network bytes: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(newValues)) {
		if key == "" {
			return nil, errors.New("keys cannot be empty")
		}
		if newValues[key] == nil {
			return nil, fmt.Errorf("key '%s' value must not be nil", key)
		}
		config[key] = newValues[key]
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return NetworkPluginConfFromBytes(b)
}

// chain is a network as all verbs use it: a list, or a single plugin.
type chain struct {
	name       string
	cniVersion string
	plugins    []*PluginConfig
	bytes      []byte // of the list or of the single plugin
	single     bool
}

func chainOfList(list *NetworkConfigList) chain {
	return chain{name: list.Name, cniVersion: list.CNIVersion, plugins: list.Plugins,
		bytes: list.Bytes}
}

func chainOfPlugin(plugin *PluginConfig) chain {
	c := chain{plugins: []*PluginConfig{plugin}, bytes: plugin.Bytes, single: true}
	if plugin.Network != nil {
		c.name, c.cniVersion = plugin.Network.Name, plugin.Network.CNIVersion
	}
	return c
}

// request returns the configuration that a plugin of the network receives: its own with the name
// and the version of the network and with more values.
func (n chain) request(plugin *PluginConfig, more map[string]any) (*PluginConfig, error) {
	values := map[string]any{"name": n.name, "cniVersion": n.cniVersion}
	maps.Copy(values, more)
	return InjectConf(plugin, values)
}

// attachmentRequest returns the configuration for ADD, CHECK or DEL. It has the previous result and
// the capability arguments that the plugin supports, if there are any.
func (n chain) attachmentRequest(k call) (*PluginConfig, error) {
	more := map[string]any{}
	if k.previous != nil {
		more["prevResult"] = k.previous
	}
	if arguments := supported(k.plugin, k.rt.CapabilityArgs); len(arguments) > 0 {
		more["runtimeConfig"] = arguments
	}
	return n.request(k.plugin, more)
}

// supported returns the capability arguments that a plugin supports.
func supported(plugin *PluginConfig, arguments map[string]any) map[string]any {
	wanted := map[string]any{}
	if plugin == nil || plugin.Network == nil {
		return wanted
	}
	for name, value := range arguments {
		if plugin.Network.Capabilities[name] {
			wanted[name] = value
		}
	}
	return wanted
}
