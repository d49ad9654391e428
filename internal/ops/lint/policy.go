package lint

import (
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// isPolicy reports whether a file is the policy of the directory.
func (c *checker) isPolicy(f config.File) bool {
	return c.catalog.Policy != nil && f.Path == c.catalog.Policy.Source
}

// policy checks the policy file.
func (c *checker) policy(f config.File, at subject) {
	if at.value = c.open(f, at); at.value == nil {
		return
	}
	if err := complaint(f); err != nil {
		e := cni.AsError(err)
		hint := e.Details
		for _, m := range at.value.Keys() {
			if m.Key != "requiredPlugins" && m.Key != "executables" {
				hint = `the keys are "requiredPlugins" and "executables"`
			}
		}
		c.add("policy", at.blame(err), hint, "%s; runtimes refuse to attach to any network", e.Msg)
		return
	}
	var names []string
	for _, n := range c.networks {
		names = append(names, n.Name)
	}
	for _, m := range at.value.Get("requiredPlugins").Keys() {
		if m.Key == config.EveryNetwork || slices.Contains(names, m.Key) {
			continue
		}
		c.add("policy-network", at.atKey(m), nearest(m.Key, names), "unknown network %q", m.Key)
	}
}

// required reports plugins that the policy requires and a network lacks.
func (c *checker) required(n *configured) {
	if p := c.catalog.Policy; p != nil && p.RequiredPlugins != nil { // nil if the policy is broken
		if err := p.Check(n.Network); err != nil {
			e := cni.AsError(err)
			c.add("policy-plugin", n.at(n.value.Get("plugins")), e.Details, "%s", e.Msg)
		}
	}
}
