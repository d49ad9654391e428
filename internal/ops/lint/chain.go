package lint

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/plugin"
)

// order checks the place of a plugin in the chain.
func (c *checker) order(n *configured, i int) {
	p := n.plugins[i]
	typ, ipam := p.at(p.value.Get("type")), p.at(p.value.Get("ipam", "type"))
	switch {
	case p.def == nil:
	case p.def.Role == plugin.RoleIPAM:
		c.add(
			"chain-order",
			typ,
			fmt.Sprintf("\"type\": \"bridge\", \"ipam\": {\"type\": %q, …}", p.typ),
			"%s is an IPAM plugin: name it as ipam.type of another plugin",
			p.typ,
		)
	case p.def.Role == plugin.RoleChained && i == 0:
		c.add(
			"chain-order",
			typ,
			"move it after the plugin that creates the interface",
			"%s is a chained plugin, but comes first",
			p.typ,
		)
	case p.def.Role == plugin.RoleInterface && i > 0:
		c.add(
			"chain-order",
			typ,
			"move it to a network of its own",
			"%s creates the container's interface, but %s has already created it",
			p.typ,
			n.plugins[0].typ,
		)
	}
	if p.allocator != nil && p.allocator.Role != plugin.RoleIPAM {
		c.add(
			"chain-order",
			ipam,
			"IPAM plugins are, for example, host-local, static and dhcp",
			"%s is not an IPAM plugin",
			p.ipam,
		)
	}
	if slices.ContainsFunc(n.plugins[:i], p.repeats) {
		c.add("repeated-plugin", typ, "", "%s appears twice in this network", p.typ)
	}
	c.runnable(n, typ, p.typ)
	c.runnable(n, ipam, p.ipam)
}

// repeats reports whether a plugin needlessly repeats another plugin of the network.
func (p *pluginObject) repeats(o *pluginObject) bool {
	if p.def != nil && p.def.Repeatable {
		return bytes.Equal(p.value.Raw, o.value.Raw)
	}
	return p.typ != "" && p.typ == o.typ
}
