package lint

import "net/netip"

// directory checks the networks of a directory together.
func (c *checker) directory() {
	var counted []*configured
	for _, n := range c.networks {
		if n.ShadowedBy != "" {
			c.add(
				"duplicate-name",
				n.at(n.value.Get("name")),
				"rename the network, or remove one of the files",
				"%[2]s defines network %[1]s, too, and sorts first; this file is never used",
				n.Name,
				n.ShadowedBy,
			)
			continue
		}
		if n.list == nil {
			continue
		}
		for _, before := range counted {
			c.together(before, n)
		}
		counted = append(counted, n)
	}
}

// together checks two networks that can exist at the same time.
func (c *checker) together(a, b *configured) {
	for i := range a.plugins {
		for j, q := range b.plugins {
			mine, other := poolOf(a, i), poolOf(b, j)
			if x, y, ok := mine.Overlap(other.RangeSet); ok {
				c.add(
					"range-overlap",
					other.subject,
					"each network keeps its own reservations: both may allocate the same address",
					"%s overlaps with %s of network %s (%s)",
					y,
					x,
					a.Name,
					a.Path,
				)
			}
			c.bridges(a.plugins[i], q, mine, other, a)
		}
	}
}

// bridges checks two plugins that may share a bridge, which has one IPv4 network.
func (c *checker) bridges(a, b *pluginObject, mine, other pool, first *configured) {
	name := bridgeOf(a)
	if name == "" || name != bridgeOf(b) || !isGateway(a) || !isGateway(b) {
		return
	}
	for _, x := range mine.gateways() {
		for _, y := range other.gateways() {
			if conflict(x, y) {
				c.add(
					"shared-bridge",
					b.at(b.value),
					"give one of the networks another bridge",
					"bridge %s gets address %s, and %s from network %s (%s)",
					name,
					y,
					x,
					first.Name,
					first.Path,
				)
				return
			}
		}
	}
}

// conflict reports whether the bridge plugin refuses to put both addresses on one bridge.
func conflict(x, y netip.Prefix) bool {
	if x == y || x.Addr().Is4() != y.Addr().Is4() {
		return false
	}
	return x.Addr().Is4() || x.Overlaps(y)
}

func bridgeOf(p *pluginObject) string {
	if p.typ != "bridge" {
		return ""
	}
	if name := p.value.Get("bridge").Text(); name != "" {
		return name
	}
	name, _ := p.def.Schema().Properties["bridge"].Default.(string)
	return name
}

func isGateway(p *pluginObject) bool {
	return p.value.Get("isGateway").IsTrue() || p.value.Get("isDefaultGateway").IsTrue()
}
