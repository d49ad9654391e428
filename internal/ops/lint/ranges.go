package lint

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

const hostLocal = "host-local"

// ranges checks the ranges of host-local, set by set. If done is true, the plugin's own validation
// would only repeat the findings.
func (c *checker) ranges(p *pluginObject) (done bool) {
	conf, ok := decodeHostLocal(p)
	if !ok {
		return false
	}
	section := p.value.Get("ipam")
	sets := conf.IPAM.Sets()
	if len(sets) == 0 {
		return p.value.Get("capabilities", "ipRanges").IsTrue() // the runtime provides them
	}
	families := map[bool]int{}
	for i, set := range sets {
		at := p.at(section.Get("subnet"))
		old := len(sets) - len(conf.IPAM.Ranges) // the range in the old form comes first
		if i >= old {
			at = p.at(section.Get("ranges").Element(i - old))
		}
		if err := set.Canonicalize(); err != nil {
			c.badSet(p, at, set, err)
			done = true
			continue
		}
		families[set.Is4()]++
		c.goodSet(p, at, set)
	}
	if done {
		return true
	}
	if err := ipam.CheckOverlap(sets); err != nil {
		c.add("range", p.at(section), "put an address into one range only", "%v", err)
		return true
	}
	for _, is4 := range []bool{true, false} {
		if family := map[bool]string{true: "IPv4", false: "IPv6"}[is4]; families[is4] > 1 {
			c.add(
				"range-sets",
				p.at(section),
				"to allocate one address from several ranges, put the ranges into one inner array",
				"each container gets %d %s addresses, one from each set",
				families[is4],
				family,
			)
		}
	}
	return false
}

// decodeHostLocal reads the configuration of host-local. ok is false for other IPAM plugins.
func decodeHostLocal(p *pluginObject) (conf hostlocal.Config, ok bool) {
	ok = p.ipam == hostLocal && json.Unmarshal(p.value.Raw, &conf) == nil
	return conf, ok
}

// badSet reports the first invalid range of a set or, if each range is valid, the error err of the
// set.
func (c *checker) badSet(p *pluginObject, at subject, set ipam.RangeSet, err error) {
	for i, r := range set {
		if err := r.Canonicalize(); err != nil {
			hint := ""
			if r.Subnet.IsValid() && r.Subnet.Masked() != r.Subnet {
				hint = "did you mean " + r.Subnet.Masked().String() + "?"
			}
			c.add("range", p.at(at.value.Element(i)), hint, "%v", err)
			return
		}
	}
	hint := "a set is a pool for one address"
	if slices.ContainsFunc(
		set,
		func(r ipam.Range) bool { return r.Subnet.Addr().Is4() != set[0].Subnet.Addr().Is4() },
	) {
		hint = "use one set for each address family: [[{…}], [{…}]]"
	}
	c.add("range", at, hint, "%v", err)
}

// goodSet reports oddities of a canonical set.
func (c *checker) goodSet(p *pluginObject, at subject, set ipam.RangeSet) {
	for i, r := range set {
		if !r.Subnet.Contains(r.Gateway) {
			c.add(
				"range-gateway",
				p.at(at.value.Element(i)),
				"",
				"gateway %s is outside %s: containers cannot reach it directly",
				r.Gateway,
				r.Subnet,
			)
		}
	}
	if set.Capacity() == 0 {
		c.add("range-empty", at, "", "%s contains no address except the gateway", set)
	}
}

// pool holds the ranges of a plugin.
type pool struct {
	subject
	ipam.RangeSet
}

// poolOf returns the ranges of a plugin of a network, or none if they are invalid.
func poolOf(n *configured, i int) pool {
	p := n.plugins[i]
	of := pool{subject: p.at(p.value.Get("ipam"))}
	if conf, ok := decodeHostLocal(p); ok {
		if sets := conf.IPAM.Sets(); ipam.CanonicalizeSets(sets) == nil {
			of.RangeSet = slices.Concat(sets...)
		}
	}
	return of
}

// gateways returns the addresses that a bridge gets.
func (a pool) gateways() []netip.Prefix {
	var all []netip.Prefix
	for _, r := range a.RangeSet {
		all = append(all, netip.PrefixFrom(r.Gateway, r.Subnet.Bits()))
	}
	return all
}
