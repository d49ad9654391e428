package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// gather adds the drop-ins to their networks.
func (c *checker) gather() {
	for _, f := range c.dropIns {
		at := spot{file: f.Path, network: f.Network}
		i := slices.IndexFunc(c.networks, func(n *network) bool { return n.network == f.Network && n.form == List })
		if i < 0 {
			c.add("ignored-file", at, "the folder of a drop-in bears the name of a network that is a list (.conflist)",
				"is not read: there is no list of a network %q", f.Network)
			continue
		}
		n := c.networks[i]
		if n.value.get("loadOnlyInlinedPlugins").isTrue() {
			c.add("ignored-file", at, "", "is not read: network %s says loadOnlyInlinedPlugins", f.Network)
			continue
		}
		if at.value = c.open(f, at); at.value == nil {
			continue
		}
		p, err := cni.ParsePlugin(f.Data)
		if err != nil {
			c.add("list", at.blame(err), cni.AsError(err).Details, "%s; network %s cannot be loaded", cni.AsError(err).Msg, f.Network)
			n.list = nil
			continue
		}
		n.plugins = append(n.plugins, object(at, at.value))
		if n.list != nil {
			n.list.Append(p)
		}
	}
}

// network judges one network.
func (c *checker) network(n *network) {
	c.version(n)
	pools := map[string]*pluginObject{}
	for i, p := range n.plugins {
		c.order(n, i)
		c.pluginObject(n, p, i)
		if p.ipam != hostLocal {
			continue
		}
		if dir := p.value.path("ipam", "dataDir").text(); pools[dir] == nil {
			pools[dir] = p
		} else {
			c.add("shared-pool", p.at(p.value.get("ipam")), "give one of them another dataDir",
				"%s gets its addresses from the same reservations as %s, which hold one for each attachment", p.typ, pools[dir].typ)
		}
	}
	said := slices.ContainsFunc(n.plugins, func(p *pluginObject) bool { return p.wrongType || p.wrongIPAM })
	if n.err != nil && !said {
		e := cni.AsError(n.err)
		c.add("list", n.blame(e), e.Details, "%s", e.Msg)
	}
	if n.list != nil && len(n.plugins) == 0 {
		c.add("list", n.spot, "neither under the key plugins nor in a folder of the network's name", "network %s has no plugins", n.network)
	}
}

// version judges the version of a network by itself.
func (c *checker) version(n *network) {
	if n.list == nil {
		return
	}
	if n.value.get("cniVersion") == nil && n.value.get("cniVersions") == nil {
		c.add("no-version", n.spot, fmt.Sprintf("add \"cniVersion\": %q", cni.Newest),
			"without cniVersion the network is run with %v, which has no CHECK, GC and STATUS and one address for each family", cni.V010)
	}
	for _, feature := range []struct {
		key   string
		since cni.Version
		what  string
	}{
		{"disableCheck", cni.V040, "there is no CHECK that it could forbid"},
		{"disableGC", cni.V110, "there is no GC that it could forbid"},
		{"loadOnlyInlinedPlugins", cni.V110, "other runtimes may not know it"},
		{"plugins", cni.V030, "lists of plugins came with 0.3.0"},
	} {
		if value := n.value.get(feature.key); value != nil && n.list.Version < feature.since {
			c.add("version-feature", n.at(value), fmt.Sprintf("use cniVersion %v or newer", feature.since),
				"%s in a network of CNI version %v: %s", feature.key, n.list.Version, feature.what)
		}
	}
}

// order judges where a plugin stands.
func (c *checker) order(n *network, i int) {
	p := n.plugins[i]
	typ, ipam := p.at(p.value.get("type")), p.at(p.value.path("ipam", "type"))
	switch {
	case p.def == nil:
	case p.def.Role == plugin.RoleIPAM:
		c.add("chain-order", typ, fmt.Sprintf("\"type\": \"bridge\", \"ipam\": {\"type\": %q, …}", p.typ),
			"%s manages addresses for another plugin: it is named by ipam.type", p.typ)
	case p.def.Role == plugin.RoleChained && i == 0:
		c.add("chain-order", typ, "put it behind the plugin that makes the interface", "%s works on what another plugin made, and is the first", p.typ)
	case p.def.Role == plugin.RoleInterface && i > 0:
		c.add("chain-order", typ, "give it a network of its own",
			"%s makes the container's interface, which %s has made already", p.typ, n.plugins[0].typ)
	}
	if p.allocator != nil && p.allocator.Role != plugin.RoleIPAM {
		c.add("chain-order", ipam, "IPAM plugins are, for example, host-local, static and dhcp", "%s does not manage addresses", p.ipam)
	}
	if slices.ContainsFunc(n.plugins[:i], func(o *pluginObject) bool { return o.typ == p.typ && p.typ != "" }) {
		c.add("repeated-plugin", typ, "", "%s stands in this network twice", p.typ)
	}
	c.executable(n, typ, p.typ, p.def)
	c.executable(n, ipam, p.ipam, p.allocator)
}

// executable judges whether a plugin can be run in the version of the network.
func (c *checker) executable(n *network, at spot, typ string, def *plugin.Definition) {
	x, known := c.executables[typ]
	switch {
	case typ == "":
		return
	case known && x.Err != nil:
		e := cni.AsError(x.Err)
		hint := e.Details
		if def != nil {
			hint = "tenon has it built in: tenon install DIR puts it there"
		}
		c.add("missing-plugin", at, hint, "%s", e.Msg)
		return
	case !known && def == nil:
		return
	case !known:
		for _, v := range def.Versions {
			x.Versions = append(x.Versions, v.String())
		}
	}
	if n.list != nil && !slices.Contains(x.Versions, n.list.Version.String()) {
		c.add("version-skew", at, "it supports "+strings.Join(x.Versions, ", "),
			"%s does not support CNI version %v, in which the network is run", typ, n.list.Version)
	}
}
