package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// NetworkConfig is the former name of [PluginConfig].
type NetworkConfig = PluginConfig

// PluginConfig is the configuration of one plugin.
type PluginConfig struct {
	Network *types.PluginConf // the keys that all plugins share
	Bytes   []byte            // the whole configuration as JSON
}

// NetworkConfigList is the configuration of a network: its plugins in the order of ADD. The fields
// are authoritative; callers may change them.
type NetworkConfigList struct {
	Name                   string
	CNIVersion             string          // of all calls
	DisableCheck           bool            // CHECK does nothing
	DisableGC              bool            // GC does nothing
	LoadOnlyInlinedPlugins bool            // plugins from other files were not added
	Plugins                []*PluginConfig // also from other files
	Bytes                  []byte          // the document as read, without plugins from other files
}

// NetworkPluginConfFromBytes parses the configuration of one plugin. It keeps the bytes and checks
// only that the JSON is valid and has a type. The error wraps errors of encoding/json.
func NetworkPluginConfFromBytes(pluginConfBytes []byte) (*PluginConfig, error) {
	conf := &PluginConfig{Bytes: pluginConfBytes, Network: &types.PluginConf{}}
	if err := json.Unmarshal(pluginConfBytes, conf.Network); err != nil {
		return nil, fmt.Errorf("error parsing configuration: %w", err)
	}
	if conf.Network.Type == "" {
		return nil, errors.New("error parsing configuration: missing 'type'")
	}
	return conf, nil
}

// ConfFromBytes is the former name of [NetworkPluginConfFromBytes].
func ConfFromBytes(bytes []byte) (*NetworkConfig, error) {
	return NetworkPluginConfFromBytes(bytes)
}

// typeOf returns the type of a plugin, or "" if its configuration is nil.
func (c *PluginConfig) typeOf() string {
	if c == nil || c.Network == nil {
		return ""
	}
	return c.Network.Type
}

// describe names a plugin in errors.
func (c *PluginConfig) describe() string {
	text := fmt.Sprintf("plugin type=%q", c.typeOf())
	if c != nil && c.Network != nil && c.Network.Name != "" {
		text += fmt.Sprintf(" name=%q", c.Network.Name)
	}
	return text
}

// ConfListFromBytes is the former name of [NetworkConfFromBytes].
func ConfListFromBytes(bytes []byte) (*NetworkConfigList, error) {
	return NetworkConfFromBytes(bytes)
}

// NetworkConfFromBytes parses the configuration of a network. The list may have no plugins, because
// these can be in other files; see [NetworkConfFromFile]. The configuration of each plugin is
// encoded again, with sorted keys; the list keeps its bytes. Its version is the newest of the keys
// cniVersion and cniVersions up to [version.Current], or cniVersion if there is none.
//
// It returns an error if the JSON is not valid, a key has the wrong type, the name is missing or
// contains a path separator, an entry of cniVersions is not a version, or a plugin has no type.
func NetworkConfFromBytes(confBytes []byte) (*NetworkConfigList, error) {
	document, err := decodeObject(confBytes)
	if err != nil {
		return nil, parsing(err)
	}
	list := &NetworkConfigList{Bytes: confBytes}
	if list.Name, err = listName(document); err != nil {
		return nil, parsing(err)
	}
	if list.CNIVersion, err = listVersion(document); err != nil {
		return nil, parsing(err)
	}
	for _, flag := range []struct {
		key   string
		value *bool
	}{
		{"disableCheck", &list.DisableCheck}, {"disableGC", &list.DisableGC},
		{"loadOnlyInlinedPlugins", &list.LoadOnlyInlinedPlugins},
	} {
		if *flag.value, err = listFlag(document, flag.key); err != nil {
			return nil, parsing(err)
		}
	}
	entries, err := pluginEntries(document, list.LoadOnlyInlinedPlugins)
	if err != nil {
		return nil, parsing(err)
	}
	for i, entry := range entries {
		plugin, err := pluginFromEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("failed to parse plugin config %d: %w", i, err)
		}
		list.Plugins = append(list.Plugins, plugin)
	}
	return list, nil
}

func parsing(err error) error { return fmt.Errorf("error parsing configuration list: %w", err) }

func listName(document map[string]any) (string, error) {
	value, ok := document["name"]
	if !ok {
		return "", errors.New("no name")
	}
	name, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("invalid name type %s", typeName(value))
	}
	if pathLike(name) {
		return "", fmt.Errorf("invalid name %q: %s", name, noPath)
	}
	return name, nil
}

// listVersion returns the version in which a network runs.
func listVersion(document map[string]any) (string, error) {
	cniVersion := ""
	if value, ok := document["cniVersion"]; ok {
		if cniVersion, ok = value.(string); !ok {
			return "", fmt.Errorf("invalid cniVersion type %s", typeName(value))
		}
	}
	value, ok := document["cniVersions"]
	if !ok {
		return cniVersion, nil
	}
	entries, ok := value.([]any)
	if !ok {
		return "", fmt.Errorf("invalid type for cniVersions: %s", typeName(value))
	}
	newest := ""
	for i, entry := range entries {
		v, ok := entry.(string)
		if !ok {
			return "", fmt.Errorf("invalid type for cniVersions index %d: %s", i, typeName(entry))
		}
		var err error
		if newest, err = newer(newest, v); err != nil {
			return "", fmt.Errorf("invalid cniVersions entry %s at index %d: %w", v, i, err)
		}
	}
	if cniVersion != "" {
		var err error
		if newest, err = newer(newest, cniVersion); err != nil {
			return "", fmt.Errorf("invalid cniVersion %s: %w", cniVersion, err)
		}
	}
	if newest == "" {
		return cniVersion, nil
	}
	return newest, nil
}

// newer returns the newer of two versions, or the first one if it is newer, or if the second one is
// not supported. The first one may be empty.
func newer(first, second string) (string, error) {
	tooNew, err := version.GreaterThan(second, version.Current())
	if err != nil || tooNew {
		return first, err
	}
	if first == "" {
		return second, nil
	}
	if more, err := version.GreaterThan(second, first); err != nil || !more {
		return first, err
	}
	return second, nil
}

// listFlag returns a boolean, which may also be text, because specification 0.4.0 defines
// disableCheck as a string.
func listFlag(document map[string]any, key string) (bool, error) {
	value, ok := document[key]
	if !ok {
		return false, nil
	}
	switch value := value.(type) {
	case bool:
		return value, nil
	case string:
		switch text := strings.ToLower(value); text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		default:
			return false, fmt.Errorf("invalid value %q for %s", text, key)
		}
	}
	return false, fmt.Errorf("invalid type %s for %s", typeName(value), key)
}

// pluginEntries returns the entries of the key plugins.
func pluginEntries(document map[string]any, required bool) ([]any, error) {
	value, ok := document["plugins"]
	switch {
	case !ok && required:
		return nil, errors.New("`loadOnlyInlinedPlugins` is true, and no 'plugins' key")
	case !ok:
		return nil, nil
	}
	entries, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("invalid 'plugins' type %s", typeName(value))
	}
	if len(entries) == 0 {
		return nil, errors.New("no plugins in list")
	}
	return entries, nil
}

func pluginFromEntry(entry any) (*PluginConfig, error) {
	b, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	return NetworkPluginConfFromBytes(b)
}

// ConfListFromConf returns a list with the name and the version of a plugin, and with the plugin as
// its only entry. It returns the errors of [NetworkConfFromBytes].
func ConfListFromConf(original *PluginConfig) (*NetworkConfigList, error) {
	if original.typeOf() == "" {
		return nil, errNoPlugin
	}
	plugin, err := decodeObject(original.Bytes)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(map[string]any{
		"cniVersion": original.Network.CNIVersion,
		"name":       original.Network.Name,
		"plugins":    []any{plugin},
	})
	if err != nil {
		return nil, err
	}
	return NetworkConfFromBytes(b)
}

// errNoPlugin is the error for the configuration of a plugin that is nil or has no type.
var errNoPlugin = errors.New("plugin configuration is missing")
