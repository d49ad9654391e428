package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// List is a network configuration list: one network with its plugins in the order of ADD.
// [ParseList] and [ParseSingle] return one. Callers may also construct or change a list; its fields
// are authoritative, not the parsed document.
type List struct {
	Name         string
	Version      Version   // for calls of plugins; by default the newest of Versions
	Versions     []Version // the supported versions in cniVersion and cniVersions, oldest first
	DisableCheck bool      // CHECK must not be called
	DisableGC    bool      // GC must not be called
	OnlyInlined  bool      // loadOnlyInlinedPlugins: plugins from other sources are not added
	Plugins      []*PluginConfig

	members map[string]json.RawMessage // members of a list; nil for a single configuration
	single  bool
}

// PluginConfig is the configuration of one plugin in a list. [ParsePlugin] returns one that keeps
// the object as written; changes to Capabilities and IPAM then have no effect. A PluginConfig
// constructed by the caller consists only of its fields.
type PluginConfig struct {
	Type         string          // file name of the binary
	Capabilities map[string]bool // capability → whether the plugin wants it
	IPAM         string          // type of the IPAM plugin that the plugin calls; empty if none

	members map[string]json.RawMessage
}

const networkConfig = "network configuration"

// ParseList parses a network configuration list. A list of version 1.1.0 may lack the key plugins,
// because plugins can come from other sources ([List.Append]); it cannot run without them. Keys of
// the list match exactly; keys of a plugin match without regard to case if there is no exact match,
// because existing configurations rely on that. Unknown keys are ignored.
//
// The code is [CodeDecodingFailure] for malformed JSON and wrong JSON types,
// [CodeIncompatibleVersion] for an unsupported version, and [CodeInvalidConfig] for all other
// mistakes.
func ParseList(b []byte) (*List, error) {
	m, err := parseObject(b)
	if err != nil {
		return nil, DecodeFailure(networkConfig, err)
	}
	l := &List{members: m}
	if err := l.identify(m["name"], m["cniVersion"], m["cniVersions"]); err != nil {
		return nil, err
	}
	for _, option := range []struct {
		key   string
		value *bool
	}{
		{"disableCheck", &l.DisableCheck}, {"disableGC", &l.DisableGC},
		{"loadOnlyInlinedPlugins", &l.OnlyInlined},
	} {
		if *option.value, err = boolean(option.key, m[option.key]); err != nil {
			return nil, l.wrap(at(option.key, err))
		}
	}
	if l.Plugins, err = l.inlined(); err != nil {
		return nil, l.wrap(err)
	}
	return l, nil
}

// ParseSingle parses the configuration of a single plugin, the only form before 0.3.0, as a list of
// one plugin. The list takes name and version from the object, but not list-level keys such as
// disableCheck. It returns the same codes as [ParseList].
func ParseSingle(b []byte) (*List, error) {
	p, err := ParsePlugin(b)
	if err != nil {
		return nil, err
	}
	l := &List{single: true, Plugins: []*PluginConfig{p}}
	m := p.members
	err = l.identify(lookup(m, "name"), lookup(m, "cniVersion"), lookup(m, "cniVersions"))
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ParsePlugin parses the configuration of one plugin as in a list or a drop-in file. It returns the
// same codes as [ParseList].
func ParsePlugin(b []byte) (*PluginConfig, error) {
	m, err := parseObject(b)
	if err != nil {
		return nil, DecodeFailure("plugin configuration", err)
	}
	p := &PluginConfig{members: m}
	typ := lookup(m, "type")
	if typ == nil && m["plugins"] != nil {
		return nil, Errorf(CodeInvalidConfig, "plugin type is missing").
			WithDetails("this is a list of plugins: its file name should end in .conflist")
	}
	if p.Type, err = text("type", typ); err != nil {
		return nil, err
	}
	if err := ValidatePluginType(p.Type); err != nil {
		return nil, at("type", err)
	}
	if err := p.wellKnown(); err != nil {
		return nil, DecodeFailure("plugin "+p.Type, err)
	}
	return p, nil
}

// wellKnown parses and checks the keys that have a meaning for every plugin.
func (p *PluginConfig) wellKnown() error {
	if err := p.readCapabilities(); err != nil {
		return at("capabilities", DecodeFailure("capabilities", err))
	}
	if err := decodeMember(p.members, "dns", new(DNS)); err != nil {
		return at("dns", err)
	}
	raw := lookup(p.members, "ipam")
	if raw == nil || isNull(raw) {
		return nil
	}
	if err := p.readIPAM(raw); err != nil {
		return at("ipam", DecodeFailure("ipam", err))
	}
	return nil
}

func (p *PluginConfig) readCapabilities() error {
	raw := lookup(p.members, "capabilities")
	if raw == nil || isNull(raw) {
		return nil
	}
	all, err := parseObject(raw)
	if err != nil {
		return err
	}
	p.Capabilities = make(map[string]bool, len(all))
	// sorted, so that the same error is reported every time
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var wanted bool
		if err := json.Unmarshal(all[name], &wanted); err != nil {
			return at(name, DecodeFailure(name, err))
		}
		p.Capabilities[name] = wanted
	}
	return nil
}

func (p *PluginConfig) readIPAM(raw json.RawMessage) error {
	ipam, err := parseObject(raw)
	if err != nil {
		return err
	}
	// no IPAM plugin: a network without addresses
	if p.IPAM, err = text("type", lookup(ipam, "type")); err != nil || p.IPAM == "" {
		return err
	}
	return at("type", ValidatePluginType(p.IPAM))
}

// identify sets name and version from the members that hold them.
func (l *List) identify(name, cniVersion, cniVersions json.RawMessage) error {
	var err error
	if l.Name, err = text("name", name); err != nil {
		return err
	}
	if err := ValidateNetworkName(l.Name); err != nil {
		return at("name", err)
	}
	for _, member := range []struct {
		key string
		raw json.RawMessage
	}{{"cniVersion", cniVersion}, {"cniVersions", cniVersions}} {
		if isNull(member.raw) { // null must not silently select 0.1.0
			return l.wrap(at(member.key, Errorf(CodeDecodingFailure, "%s is null", member.key)))
		}
	}
	version, err := text("cniVersion", cniVersion)
	if err != nil {
		return l.wrap(err)
	}
	var versions []string
	if cniVersions != nil {
		if err := json.Unmarshal(cniVersions, &versions); err != nil {
			return l.wrap(at("cniVersions", DecodeFailure("cniVersions", err)))
		}
	}
	if l.Versions, err = candidates(version, versions); err != nil {
		return l.wrap(err)
	}
	l.Version = slices.Max(l.Versions)
	return nil
}

// inlined parses the plugins in the list itself.
func (l *List) inlined() ([]*PluginConfig, error) {
	raw, ok := l.members["plugins"]
	switch {
	case ok:
	case l.OnlyInlined:
		return nil, Errorf(CodeInvalidConfig,
			"loadOnlyInlinedPlugins is true and there are no plugins")
	case l.members["type"] != nil:
		return nil, Errorf(CodeInvalidConfig,
			"this is the configuration of a single plugin, not a list")
	case l.Version < V110:
		return nil, Errorf(CodeInvalidConfig, "plugins is missing")
	default:
		return nil, nil
	}
	var objects []json.RawMessage
	if err := json.Unmarshal(raw, &objects); err != nil {
		return nil, at("plugins", DecodeFailure("plugins", err))
	}
	if objects == nil {
		return nil, at("plugins", Errorf(CodeDecodingFailure, "plugins is null"))
	}
	if len(objects) == 0 {
		return nil, at("plugins", Errorf(CodeInvalidConfig, "plugins is empty"))
	}
	plugins := make([]*PluginConfig, len(objects))
	for i, o := range objects {
		var err error
		if plugins[i], err = ParsePlugin(o); err != nil {
			err = DecodeFailure(fmt.Sprintf("plugins[%d]", i), err)
			return nil, at("plugins", at(strconv.Itoa(i), err))
		}
	}
	return plugins, nil
}

func (l *List) wrap(err error) error { return DecodeFailure("network "+l.Name, err) }

// Append adds the configurations of plugins from other sources after the plugins of the list
// itself.
func (l *List) Append(plugins ...*PluginConfig) { l.Plugins = append(l.Plugins, plugins...) }

// Executables returns the types of the plugins and of their IPAM plugins, without duplicates, in
// the order of the configuration.
func (l *List) Executables() []string {
	var types []string
	for _, p := range l.Plugins {
		for _, typ := range []string{p.Type, p.IPAM} {
			if typ != "" && !slices.Contains(types, typ) {
				types = append(types, typ)
			}
		}
	}
	return types
}

// WithVersion returns a copy of the list that runs only in version v.
func (l *List) WithVersion(v Version) *List {
	c := *l
	c.Version, c.Versions = v, []Version{v}
	return &c
}

// MarshalJSON returns the effective list: with all plugins inlined and, if there are any, with
// loadOnlyInlinedPlugins set, so that [ParseList] of the result yields the same network regardless
// of drop-in files. It keeps unknown keys.
func (l *List) MarshalJSON() ([]byte, error) {
	m := map[string]json.RawMessage{}
	maps.Copy(m, l.members)
	m["name"] = encode(l.Name)
	m["cniVersion"] = encode(l.Version)
	delete(m, "cniVersions")
	if len(l.Versions) > 1 && l.Version == slices.Max(l.Versions) {
		m["cniVersions"] = encode(l.Versions)
	}
	disabled := map[string]bool{"disableCheck": l.DisableCheck, "disableGC": l.DisableGC}
	for key, value := range disabled {
		if written, err := boolean(key, m[key]); err != nil || written != value {
			m[key] = encode(value)
		}
	}
	if len(l.Plugins) > 0 {
		m["plugins"] = encode(l.Plugins)
		m["loadOnlyInlinedPlugins"] = json.RawMessage("true")
	}
	return encode(m), nil
}

// MarshalJSON returns the configuration as written, in compact form.
func (p *PluginConfig) MarshalJSON() ([]byte, error) { return encode(p.object()), nil }

// object returns the configuration as JSON. Callers must not change it.
func (p *PluginConfig) object() map[string]json.RawMessage {
	typ, err := text("type", lookup(p.members, "type"))
	if err == nil && typ == p.Type && typ != "" {
		return p.members
	}
	m := maps.Clone(p.members)
	if m == nil {
		m = map[string]json.RawMessage{}
		if p.Capabilities != nil {
			m["capabilities"] = encode(p.Capabilities)
		}
		if p.IPAM != "" {
			m["ipam"] = encode(map[string]string{"type": p.IPAM})
		}
	}
	removeKey(m, "type")
	m["type"] = encode(p.Type)
	return m
}

// text returns "" for a member that is absent or null.
func text(key string, raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", at(key, DecodeFailure(key, err))
	}
	return s, nil
}

// boolean accepts true and false, also as text in any case, because specification 0.4.0 types
// disableCheck as a string.
func boolean(key string, raw json.RawMessage) (bool, error) {
	if raw == nil {
		return false, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return false, DecodeFailure(key, err)
	}
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return false, Errorf(CodeInvalidConfig, "%s: %q is neither true nor false", key, v)
	}
	return false, Errorf(CodeDecodingFailure, "%s: %s is not a boolean", key, raw)
}
