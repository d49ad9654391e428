package network

import (
	"context"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network/config"
)

// Negotiation describes how the version of a network was selected.
type Negotiation struct {
	Version cni.Version // the newest that all plugins support; 0 if there is none
	// Plugins are the plugins and IPAM plugins that were asked, each once, in their order. It is
	// nil if there was no need to ask.
	Plugins []PluginVersions
}

// PluginVersions lists the versions that a plugin supports.
type PluginVersions struct {
	Type     string
	Versions []string // as the plugin reported them, unknown versions included
}

// LimitedBy returns the types of the plugins that do not support v.
func (g Negotiation) LimitedBy(v cni.Version) []string {
	var types []string
	for _, p := range g.Plugins {
		if !slices.Contains(p.Versions, v.String()) {
			types = append(types, p.Type)
		}
	}
	return types
}

// Negotiate selects the version of a network (specification 1.1.0, "Network configuration format"):
// the newest version that the network offers ([cni.List.Versions]) and that all of its plugins and
// IPAM plugins support. If the network offers one version only, Negotiate returns it and asks no
// plugin. Answers of plugins are cached, in [Client.StateDir] too, until the plugin's file changes.
//
// If the plugins have no version in common, the error has [cni.CodeIncompatibleVersion] and lists
// the versions of each plugin, and the Negotiation is incomplete. If a plugin cannot be asked,
// Negotiate returns the error of the call.
//
// [Client.Add], [Client.Status], [Client.GC], [Client.Validate], and [Client.Del] of an attachment
// without a record call Negotiate themselves.
func (c *Client) Negotiate(ctx context.Context, n *config.Network) (Negotiation, error) {
	if err := n.Validate(); err != nil {
		return Negotiation{}, err
	}
	g, err := c.agree(ctx, n.List)
	return g, ofNetwork(n, err)
}

// negotiate returns the network in the version to use. It logs a warning if this is not the newest.
func (c *Client) negotiate(ctx context.Context, n *config.Network) (*config.Network, error) {
	if len(n.Versions) < 2 {
		return n, nil
	}
	g, err := c.agree(ctx, n.List)
	if err != nil {
		return n, err
	}
	if g.Version != n.Version {
		c.log().Warn("network uses an older CNI version than it offers", "network", n.Name,
			"version", g.Version.String(), "offered", n.Version.String(),
			"limitedBy", strings.Join(g.LimitedBy(n.Version), ","))
	}
	return n.WithVersion(g.Version), nil
}

func (c *Client) agree(ctx context.Context, l *cni.List) (Negotiation, error) {
	if len(l.Versions) < 2 {
		return Negotiation{Version: l.Version}, nil
	}
	g, err := c.ask(ctx, l.Executables())
	if err != nil {
		return g, err
	}
	for _, v := range slices.Backward(l.Versions) {
		if g.LimitedBy(v) == nil {
			g.Version = v
			return g, nil
		}
	}
	var support []string
	for _, p := range g.Plugins {
		support = append(support, p.Type+" supports "+strings.Join(p.Versions, ", "))
	}
	return g, cni.Errorf(cni.CodeIncompatibleVersion,
		"no CNI version out of %v is supported by all plugins", l.Versions).
		WithDetails(strings.Join(support, "; "))
}

// ask asks plugins for their versions, up to the first that fails.
func (c *Client) ask(ctx context.Context, types []string) (g Negotiation, err error) {
	cache := records.ReadVersions(c.stateDir())
	for _, typ := range types {
		path, err := c.find(typ)
		if err != nil {
			return g, err
		}
		id := statefile.Identify(path) // before the call, in case the file changes meanwhile
		versions := cache.Get(path, id)
		if versions == nil {
			r, err := c.Versions(ctx, typ)
			if err != nil {
				return g, err
			}
			versions = r.Supported
			cache.Put(path, records.Answer{Identity: id, Versions: versions})
		}
		g.Plugins = append(g.Plugins, PluginVersions{typ, versions})
	}
	if err := cache.Store(); err != nil {
		c.log().Debug("cannot store the versions of plugins; they will be asked again",
			"error", err)
	}
	return g, nil
}
