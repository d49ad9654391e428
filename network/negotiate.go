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

// Negotiation is how the version came to be that a network is run with.
type Negotiation struct {
	Version cni.Version      // the newest that all support; 0 if there is none
	Plugins []PluginVersions // what was asked: plugins and their IPAM plugins, each once, in their order; nil if nothing had to be
}

// PluginVersions is what a plugin supports.
type PluginVersions struct {
	Type     string
	Versions []string // as it said, possibly with some that are not known here
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

// Negotiate finds out which version a network is run with (specification 1.1.0, "Network configuration format"): the
// newest of those that it offers ([cni.List.Versions]) that all plugins and the IPAM plugins they name support. Where it
// offers only one, that is it, and no plugin is asked. What plugins answer is remembered, in [Client.StateDir] too, until
// their file is replaced or changed.
//
// If they have no version in common the error has [cni.CodeIncompatibleVersion] and says who supports what; the
// Negotiation holds what is known. If one cannot be asked the error is that of the call.
//
// [Client.Add], [Client.Status], [Client.GC], [Client.Validate], and [Client.Del] where nothing is recorded, negotiate by
// themselves.
func (c *Client) Negotiate(ctx context.Context, n *config.Network) (Negotiation, error) {
	if err := n.Validate(); err != nil {
		return Negotiation{}, err
	}
	g, err := c.agree(ctx, n.List)
	return g, ofNetwork(n, err)
}

// negotiate returns the network as it is to be run, and tells where that is not in the newest version.
func (c *Client) negotiate(ctx context.Context, n *config.Network) (*config.Network, error) {
	if len(n.Versions) < 2 {
		return n, nil
	}
	g, err := c.agree(ctx, n.List)
	if err != nil {
		return n, err
	}
	if g.Version != n.Version {
		c.log().Warn("network is run in an older version than it offers", "network", n.Name,
			"version", g.Version.String(), "offered", n.Version.String(), "limitedBy", strings.Join(g.LimitedBy(n.Version), ","))
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
	return g, cni.Errorf(cni.CodeIncompatibleVersion, "no CNI version out of %v is supported by all plugins", l.Versions).
		WithDetails(strings.Join(support, "; "))
}

// ask asks plugins for their versions, up to the first that cannot be asked.
func (c *Client) ask(ctx context.Context, types []string) (g Negotiation, err error) {
	cache := records.ReadVersions(c.stateDir())
	for _, typ := range types {
		path, err := c.find(typ)
		if err != nil {
			return g, err
		}
		id := statefile.Identify(path) // before it is asked: what is replaced meanwhile is asked again
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
		c.log().Debug("what plugins support cannot be stored and will be asked again", "error", err)
	}
	return g, nil
}
