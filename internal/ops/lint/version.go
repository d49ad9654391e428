package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/all"
)

// executable describes the executable file of a plugin.
type executable struct {
	versions []string // nil: unknown
	err      error
}

// executable asks a plugin once. Without [Ask] it returns the versions of built-in plugins.
func (c *checker) executable(typ string) executable {
	x, done := c.asked[typ]
	switch def := all.Find(typ); {
	case done:
		return x
	case cni.ValidatePluginType(typ) != nil:
	case c.ask != nil:
		x.versions, x.err = c.ask(typ)
	case def != nil:
		for _, v := range def.Versions {
			x.versions = append(x.versions, v.String())
		}
	}
	c.asked[typ] = x
	return x
}

// version checks the newest version of a network.
func (c *checker) version(n *configured) {
	if n.list == nil {
		return
	}
	if n.value.Get("cniVersion") == nil && n.value.Get("cniVersions") == nil {
		c.add(
			"no-version",
			n.subject,
			fmt.Sprintf("add \"cniVersion\": %q", cni.Newest),
			"without cniVersion the network runs with CNI %v, which lacks CHECK, GC and STATUS and allows one address per family",
			cni.V010,
		)
	}
	for _, feature := range []struct {
		key   string
		since cni.Version
		what  string
	}{
		{"disableCheck", cni.V040, "the version lacks CHECK"},
		{"disableGC", cni.V110, "the version lacks GC"},
		{"loadOnlyInlinedPlugins", cni.V110, "other runtimes may ignore it"},
		{"plugins", cni.V030, "lists of plugins require 0.3.0"},
	} {
		if value := n.value.Get(feature.key); value != nil && n.list.Version < feature.since {
			c.add(
				"version-feature",
				n.at(value),
				fmt.Sprintf("use cniVersion %v or newer", feature.since),
				"%s in a network of CNI version %v: %s",
				feature.key,
				n.list.Version,
				feature.what,
			)
		}
	}
}

// negotiate chooses the version of a network that offers several, as [network.Client.Negotiate]
// does.
func (c *checker) negotiate(n *configured) {
	if n.list == nil || len(n.list.Versions) < 2 {
		return // see runnable
	}
	var g network.Negotiation
	for _, typ := range n.list.Executables() {
		if x := c.executable(typ); x.versions != nil {
			g.Plugins = append(g.Plugins, network.PluginVersions{Type: typ, Versions: x.versions})
		}
	}
	at := n.at(n.value.Get("cniVersions"))
	newest := n.list.Version
	common := slices.DeleteFunc(
		slices.Clone(n.list.Versions),
		func(v cni.Version) bool { return g.LimitedBy(v) != nil },
	)
	if len(common) == 0 {
		c.add(
			"version-skew",
			at,
			support(g.Plugins),
			"no CNI version out of %v is supported by all plugins",
			n.list.Versions,
		)
		return
	}
	n.list = n.list.WithVersion(common[len(common)-1])
	if n.list.Version < newest {
		limits := g.LimitedBy(newest)
		g.Plugins = slices.DeleteFunc(
			g.Plugins,
			func(p network.PluginVersions) bool { return !slices.Contains(limits, p.Type) },
		)
		c.add(
			"older-version",
			at,
			support(g.Plugins),
			"the network runs with CNI version %v, because not all plugins support %v",
			n.list.Version,
			newest,
		)
	}
}

func support(plugins []network.PluginVersions) string {
	var each []string
	for _, p := range plugins {
		each = append(each, p.Type+" supports "+strings.Join(p.Versions, ", "))
	}
	return strings.Join(each, "; ")
}

// runnable checks whether a plugin exists and supports the version of the network.
func (c *checker) runnable(n *configured, at subject, typ string) {
	if typ == "" {
		return
	}
	x := c.executable(typ)
	if x.err != nil {
		e := cni.AsError(x.err)
		hint := e.Details
		if errors.Is(x.err, config.ErrNotAllowed) {
			c.add("policy-executable", at, hint, "%s", e.Msg)
			return
		}
		if p, ok := all.FindProgram(typ); ok {
			hint = "install it, it is the program " + p.Program + ": tenon install DIR"
		} else if all.Find(typ) != nil {
			hint = "install it, it is built into tenon: tenon install DIR"
		} else if near := nearest(typ, known()); near != "" {
			hint = near
		}
		c.add("missing-plugin", at, hint, "%s", e.Msg)
		return
	}
	if n.list != nil && len(n.list.Versions) == 1 && x.versions != nil &&
		!slices.Contains(x.versions, n.list.Version.String()) {
		c.add("version-skew", at, "it supports "+strings.Join(x.versions, ", "),
			"%s does not support CNI version %v of the network", typ, n.list.Version)
	}
}
