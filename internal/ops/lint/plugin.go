package lint

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
	"github.com/tenon-cni/tenon/plugin"
)

// pluginObject checks plugin i of a network.
func (c *checker) pluginObject(n *configured, p *pluginObject, i int) {
	if p.value.Kind != document.Object {
		return // loading has failed
	}
	c.keys(p)
	c.reserved(n, p)
	c.capabilities(p)
	for _, key := range []string{"isGateway", "isDefaultGateway", "ipMasq"} {
		if value := p.value.Get(key); value.IsTrue() && p.ipam == "" {
			c.add(
				"needs-ipam",
				p.at(value),
				"add an ipam section, or remove the option",
				"%s has no effect in a network without addresses",
				key,
			)
		}
	}
	if section := p.value.Get("ipam"); p.def != nil && len(section.Keys()) > 0 &&
		section.Get("type") == nil {
		c.add(
			"ipam-type",
			p.at(section),
			`add "type", for example "host-local", or remove the section`,
			"the ipam section has no type: containers get no addresses",
		)
	}
	if n.list == nil {
		return
	}
	request, err := n.list.Request(cni.Add, i, cni.RequestData{})
	if err != nil {
		c.add("refused", p.blame(err), "", "%v", err)
		return
	}
	if p.def != nil && p.def.Role != plugin.RoleIPAM && !p.wrongType {
		c.refused(p.subject, p.def, request)
		c.advised(p, request)
	}
	if p.allocator == nil || p.allocator.Role != plugin.RoleIPAM || p.wrongIPAM ||
		p.ipam == hostLocal && c.ranges(p) {
		return
	}
	c.refused(p.at(p.value.Get("ipam")), p.allocator, request)
}

// refused reports an error of the plugin's own validation.
func (c *checker) refused(at subject, d *plugin.Definition, request []byte) {
	err := d.Validate(request)
	if err == nil || cni.CodeOf(err) == cni.CodeIncompatibleVersion { // see executable
		return
	}
	e := cni.AsError(err)
	where := at.blame(err)
	if v := at.named(e.Details); where == at &&
		v != nil { // a message that must equal upstream's names no key
		where = at.at(v)
	}
	c.add("refused", where, e.Details, "%s refuses this with code %d: %s", d.Name, e.Code, e.Msg)
}

// advised reports the choices that a plugin makes on this host. It reports none if the caller has
// disabled questions to plugins, or if the plugin returns an error.
func (c *checker) advised(p *pluginObject, request []byte) {
	if c.ask == nil {
		return
	}
	choices, err := p.def.Advise(context.Background(), request)
	if err != nil {
		return
	}
	for _, choice := range choices {
		c.add("host-choice", p.subject, "", "%s %s", p.def.Name, choice)
	}
}

// keys checks the keys and JSON types against the schemas of the plugin and its IPAM plugin.
func (c *checker) keys(p *pluginObject) {
	known := p.def
	if known == nil {
		known = unknown()
	}
	s := known.Schema()
	// Keys for runtimes, and keys that plugins ignore, may have any value.
	for _, key := range []string{"args", "cniVersions", "prevResult", "runtimeConfig"} {
		s.Properties[key] = &plugin.Schema{}
	}
	if p.allocator != nil {
		s.Properties["ipam"] = p.allocator.Schema().Properties["ipam"]
	} else if p.def == nil || p.ipam != "" || p.value.Get("ipam", "type") == nil {
		s.Properties["ipam"].Order = nil
	}
	if p.def == nil {
		s.Order = nil
	}
	w := walk{c, p, s}
	w.value(p.value, s)
}

// unknown returns a definition for plugins that are not built in, with the keys of all plugins.
func unknown() *plugin.Definition {
	d := plugin.DefineFlow(
		plugin.Info{},
		func() (plugin.Configuration, plugin.Plugin) { return new(general), nil },
	)
	return &d
}

type general struct{ plugin.Common }

// walk compares a value with a schema. A schema without Order allows unknown keys.
type walk struct {
	*checker
	p   *pluginObject
	top *plugin.Schema
}

func (w walk) value(n *document.Node, s *plugin.Schema) {
	if s.Type == "" || n.Kind == document.Null { // null means absent
		return
	}
	integer := s.Type == "integer" && n.Kind == document.Number &&
		!strings.ContainsAny(string(n.Raw), ".eE")
	if !integer && string(n.Kind) != s.Type {
		w.add(
			"type",
			w.p.at(n),
			typeHint(n, s.Type),
			"%s: %s is not a JSON %s",
			n.Label(),
			compact(n.Raw),
			s.Type,
		)
		if ipam := w.p.value.Get("ipam"); ipam != nil &&
			strings.HasPrefix(n.Pointer, ipam.Pointer) {
			w.p.wrongIPAM = true
		} else {
			w.p.wrongType = true
		}
		return
	}
	for _, e := range n.Elements {
		w.value(e, s.Items)
	}
	for _, m := range n.Members {
		w.member(m, s)
	}
}

func (w walk) member(m document.Member, s *plugin.Schema) {
	at := w.p.atKey(m)
	if p := s.Properties[m.Key]; p != nil {
		w.value(m.Value, p)
		return
	}
	for key, p := range s.Properties {
		if strings.EqualFold(key, m.Key) {
			w.add("key-case", at, "", "plugins read %q as %q", m.Key, key)
			w.value(m.Value, p)
			return
		}
	}
	if s.Additional != nil {
		w.value(m.Value, s.Additional)
		return
	}
	if len(s.Order) == 0 || strings.HasPrefix(m.Key, "_") || strings.HasPrefix(m.Key, "$") ||
		strings.HasPrefix(m.Key, reservedPrefix) {
		return
	}
	w.add("unknown-key", at, w.suggest(m.Key, s), "unknown key %q", m.Key)
}

// suggest returns a hint for an unknown key.
func (w walk) suggest(key string, s *plugin.Schema) string {
	ipam := w.top.Properties["ipam"]
	switch {
	case listKeys()[key] != "":
		return "move it to the list: it is not a key of a plugin"
	case s == w.top && ipam.Properties[key] != nil:
		return "move it into the ipam section"
	case s == ipam && w.top.Properties[key] != nil:
		return "move it out of the ipam section"
	}
	hint := nearest(key, slices.Sorted(maps.Keys(s.Properties)))
	const most = 8 // a longer list does not help
	if hint == "" && len(s.Order) <= most {
		hint = "known keys: " + strings.Join(s.Order, ", ")
	}
	return hint
}

const reservedPrefix = "cni.dev/"

// reserved reports keys that only runtimes may set.
func (c *checker) reserved(n *configured, p *pluginObject) {
	for _, m := range p.value.Members {
		at := p.atKey(m)
		switch key := m.Key; {
		case strings.EqualFold(key, "runtimeConfig"):
			c.add(
				"reserved-key",
				at,
				"declare capabilities; the runtime sets runtimeConfig",
				"runtimeConfig belongs to the runtime, which may replace it",
			)
		case strings.EqualFold(key, "prevResult"), strings.HasPrefix(key, reservedPrefix):
			c.add(
				"reserved-key",
				at,
				"remove it",
				"%s belongs to the runtime, which removes it",
				key,
			)
		case key == "args" && n.list != nil && n.list.Version >= cni.V100:
			c.add(
				"reserved-key",
				at,
				"",
				"args belongs to the runtime since CNI 1.0.0; it is still passed on",
			)
		}
	}
}

// capabilities reports declared capabilities that neither the plugin nor its IPAM plugin supports.
func (c *checker) capabilities(p *pluginObject) {
	if p.def == nil || p.ipam != "" && p.allocator == nil {
		return // an unknown plugin may support any
	}
	understood := slices.Clone(p.def.Capabilities)
	if p.allocator != nil {
		understood = append(understood, p.allocator.Capabilities...)
	}
	for _, m := range p.value.Get("capabilities").Keys() {
		if !m.Value.IsTrue() || slices.Contains(understood, m.Key) {
			continue
		}
		hint := "remove it"
		if len(understood) > 0 {
			hint = "supported: " + strings.Join(understood, ", ")
		}
		c.add(
			"unknown-capability",
			p.atKey(m),
			hint,
			"%s does not support the capability %q",
			p.typ,
			m.Key,
		)
	}
}
