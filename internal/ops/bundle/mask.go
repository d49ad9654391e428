package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/plugin"
)

// Mask stands for a value that is left out.
const Mask = "(masked)"

// Find returns the schema of a plugin with its IPAM plugin's section, nil for a plugin that Tenon
// does not know.
type Find func(typ, ipam string) *plugin.Schema

// Schemas returns the schemas of plugins.
func Schemas(known []plugin.Definition) Find {
	of := func(name string) *plugin.Schema {
		for _, d := range known {
			if d.Name == name {
				return d.Schema()
			}
		}
		return nil
	}
	return func(typ, ipam string) *plugin.Schema {
		s := of(typ)
		if s == nil {
			return nil
		}
		if allocator := of(ipam); allocator != nil {
			s.Properties["ipam"] = allocator.Properties["ipam"]
		}
		return s
	}
}

// listKeys are the keys of a list of plugins and of a single plugin that the specification defines,
// except "plugins" (SPEC section 1).
var listKeys = &plugin.Schema{Properties: map[string]*plugin.Schema{
	"cniVersion": {Type: "string"}, "cniVersions": {Type: "array", Items: &plugin.Schema{Type: "string"}},
	"name": {Type: "string"}, "type": {Type: "string"}, "disableCheck": {Type: "boolean"},
	"disableGC": {Type: "boolean"}, "loadOnlyInlinedPlugins": {Type: "boolean"},
	"capabilities": {Type: "object", Additional: &plugin.Schema{Type: "boolean"}},
}}

// masker replaces values and counts them.
type masker struct {
	find   Find
	masked int
}

// Config returns a network configuration without the values of keys that neither the specification
// nor a schema knows, and the number of values that it masks. Text that is not a JSON object is left
// out completely.
func Config(text []byte, find Find) (masked []byte, count int) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var conf map[string]any
	if err := d.Decode(&conf); err != nil {
		return fmt.Appendf(nil, "%q\n", fmt.Sprintf("%d bytes that are not a JSON object: %v", len(text), err)), 1
	}
	m := &masker{find: find}
	out, err := json.MarshalIndent(m.list(conf), "", "  ")
	if err != nil {
		return nil, 0 // decoded JSON can be encoded
	}
	return append(out, '\n'), m.masked
}

// list masks a list of plugins, or a single plugin.
func (m *masker) list(conf map[string]any) map[string]any {
	plugins, ok := conf["plugins"].([]any)
	if !ok {
		return m.plugin(conf)
	}
	delete(conf, "plugins")
	conf = m.object(conf, listKeys)
	for i, p := range plugins {
		if object, ok := p.(map[string]any); ok {
			plugins[i] = m.plugin(object)
		} else {
			plugins[i] = m.mask(p)
		}
	}
	conf["plugins"] = plugins
	return conf
}

// plugin masks the configuration of a plugin.
func (m *masker) plugin(conf map[string]any) map[string]any {
	typ, _ := conf["type"].(string)
	section, _ := conf["ipam"].(map[string]any)
	ipam, _ := section["type"].(string)
	schema := m.find(typ, ipam)
	if schema == nil {
		schema = listKeys
	}
	known := &plugin.Schema{Properties: map[string]*plugin.Schema{}}
	for key, s := range listKeys.Properties {
		known.Properties[key] = s
	}
	for key, s := range schema.Properties {
		switch key {
		case "args", "runtimeConfig", "prevResult": // the runtime's
		default:
			known.Properties[key] = s
		}
	}
	return m.object(conf, known)
}

// object masks the members that a schema does not know.
func (m *masker) object(object map[string]any, s *plugin.Schema) map[string]any {
	for key, value := range object {
		known := property(s, key)
		switch {
		case known == nil:
			object[key] = m.mask(value)
		default:
			object[key] = m.value(value, known)
		}
	}
	return object
}

// property returns the schema of a member. Plugins read keys in letters of any case.
func property(s *plugin.Schema, key string) *plugin.Schema {
	for name, p := range s.Properties {
		if strings.EqualFold(name, key) {
			return p
		}
	}
	return s.Additional
}

// value masks a value unless it has the type of its schema.
func (m *masker) value(v any, s *plugin.Schema) any {
	switch v := v.(type) {
	case map[string]any:
		if s.Type == "object" {
			return m.object(v, s)
		}
	case []any:
		if s.Type == "array" && s.Items != nil {
			for i := range v {
				v[i] = m.value(v[i], s.Items)
			}
			return v
		}
	case string:
		if s.Type == "string" || s.Type == "" {
			return v
		}
	default: // a number, true, false or null holds no secret where a key is known
		return v
	}
	return m.mask(v)
}

func (m *masker) mask(any) any {
	m.masked++
	return Mask
}

// Args returns the pairs of CNI_ARGS and the number of masked values. It masks all values, except
// the names of a pod of Kubernetes.
func Args(text string) (masked string, count int) {
	if text == "" {
		return "", 0
	}
	pairs := strings.Split(text, ";")
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(key, "K8S_POD_") || key == "IgnoreUnknown" || value == "" {
			continue
		}
		pairs[i] = key + "=" + Mask
		count++
	}
	return strings.Join(pairs, ";"), count
}
