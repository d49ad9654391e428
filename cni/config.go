package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// List is a network configuration list: one network, and the plugins that make it up in the order of ADD. [ParseList]
// and [ParseSingle] make one. A list may also be put together by hand, or changed: its fields decide, not what was read.
type List struct {
	Name         string
	Version      Version   // the version its plugins are called with: the newest of Versions, unless [List.WithVersion] chose
	Versions     []Version // the supported versions in cniVersion and cniVersions, oldest first
	DisableCheck bool      // CHECK must not be called
	DisableGC    bool      // GC must not be called
	OnlyInlined  bool      // loadOnlyInlinedPlugins: plugins from other sources are not added
	Plugins      []*PluginConfig

	members map[string]json.RawMessage // of the list; none for a single configuration
	single  bool
}

// PluginConfig is the configuration of one plugin in a list. [ParsePlugin] makes one, which keeps the object as it was
// written; then Capabilities and IPAM are for reading. One that is put together by hand has nothing but its fields.
type PluginConfig struct {
	Type         string          // file name of the executable
	Capabilities map[string]bool // capability → whether the plugin wants it
	IPAM         string          // type of the IPAM plugin it delegates to; empty if none

	members map[string]json.RawMessage
}

const networkConfig = "network configuration"

// ParseList reads a network configuration list. A list of version 1.1.0 may have no plugins key, as they can come from
// other sources ([List.Append]); it cannot be run like that. Keys of the list are matched exactly, those of a plugin
// without regard to case where there is no exact match, as configurations rely on. Unknown keys are ignored.
//
// Malformed JSON and a wrong JSON type have [CodeDecodingFailure], an unsupported version has
// [CodeIncompatibleVersion], any other mistake has [CodeInvalidConfig].
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
		{"disableCheck", &l.DisableCheck}, {"disableGC", &l.DisableGC}, {"loadOnlyInlinedPlugins", &l.OnlyInlined},
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

// ParseSingle reads the configuration of a single plugin, the only form before 0.3.0, as a list of one. Name and
// version are lifted from the object; list-level keys such as disableCheck are not. Codes are those of [ParseList].
func ParseSingle(b []byte) (*List, error) {
	p, err := ParsePlugin(b)
	if err != nil {
		return nil, err
	}
	l := &List{single: true, Plugins: []*PluginConfig{p}}
	m := p.members
	if err := l.identify(lookup(m, "name"), lookup(m, "cniVersion"), lookup(m, "cniVersions")); err != nil {
		return nil, err
	}
	return l, nil
}

// ParsePlugin reads the configuration of one plugin as it stands in a list or in a drop-in file. Codes are those of
// [ParseList].
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

// wellKnown reads and checks the keys that have a meaning for every plugin.
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
	for _, name := range slices.Sorted(maps.Keys(all)) { // of several errors always the same
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
	if p.IPAM, err = text("type", lookup(ipam, "type")); err != nil || p.IPAM == "" { // none: a network without addresses
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
		if isNull(member.raw) { // nobody should get 0.1.0 by accident
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

// inlined reads the plugins that the list has itself.
func (l *List) inlined() ([]*PluginConfig, error) {
	raw, ok := l.members["plugins"]
	switch {
	case ok:
	case l.OnlyInlined:
		return nil, Errorf(CodeInvalidConfig, "loadOnlyInlinedPlugins is true and there are no plugins")
	case l.members["type"] != nil:
		return nil, Errorf(CodeInvalidConfig, "this is the configuration of a single plugin, not a list")
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
			return nil, at("plugins", at(strconv.Itoa(i), DecodeFailure(fmt.Sprintf("plugins[%d]", i), err)))
		}
	}
	return plugins, nil
}

func (l *List) wrap(err error) error { return DecodeFailure("network "+l.Name, err) }

// Append adds the configurations of plugins from other sources, behind those that the list has itself.
func (l *List) Append(plugins ...*PluginConfig) { l.Plugins = append(l.Plugins, plugins...) }

// Executables returns the types of the plugins and of the IPAM plugins they delegate to, each once, in the order in
// which they are named.
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

// WithVersion returns the list as it is run in version v and no other.
func (l *List) WithVersion(v Version) *List {
	c := *l
	c.Version, c.Versions = v, []Version{v}
	return &c
}

// MarshalJSON returns the list as it is run: with all plugins inlined and, if there are any, with
// loadOnlyInlinedPlugins set, so that [ParseList] of it gives the same network whatever drop-in files say. Unknown
// keys are kept.
func (l *List) MarshalJSON() ([]byte, error) {
	m := map[string]json.RawMessage{}
	maps.Copy(m, l.members)
	m["name"] = encode(l.Name)
	m["cniVersion"] = encode(l.Version)
	delete(m, "cniVersions")
	if len(l.Versions) > 1 && l.Version == slices.Max(l.Versions) {
		m["cniVersions"] = encode(l.Versions)
	}
	for key, value := range map[string]bool{"disableCheck": l.DisableCheck, "disableGC": l.DisableGC} {
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

// MarshalJSON returns the configuration as it was written, in compact form.
func (p *PluginConfig) MarshalJSON() ([]byte, error) { return encode(p.object()), nil }

// object is the configuration as JSON. It must not be changed.
func (p *PluginConfig) object() map[string]json.RawMessage {
	if typ, err := text("type", lookup(p.members, "type")); err == nil && typ == p.Type && typ != "" {
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

// boolean accepts true and false, and the same as text in any case: specification 0.4.0 types disableCheck as a string.
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
