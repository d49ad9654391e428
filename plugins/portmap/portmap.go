package portmap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Plugin is the definition of portmap.
var Plugin = chained.Define(plugin.Info{
	Name:         "portmap",
	About:        "forwards ports of the host to a container",
	Role:         plugin.RoleChained,
	Capabilities: []string{"portMappings"},
	Doc:          doc,
}, chained.Traits{
	NoPrev:   chained.NoPrev{Check: "Required prevResult missing"},
	RuleSets: []*kernel.RuleSet{kernel.Publishing},
	Holds:    kernel.Publisher,
}, func() chained.Decorator { return new(Config) })

// Validate refuses invalid mappings before any change. On ADD the error has upstream's prefix.
func (c *Config) Validate(call *plugin.Call) error {
	err := c.validate()
	if err != nil && call.Command == cni.Add {
		err = fmt.Errorf("failed to parse config: %w", err)
	}
	return err
}

// prepare derives mappings and addresses from the call, once. It reports whether there are ports to
// forward.
func (c *Config) prepare(s *chained.Session) (bool, error) {
	if c.forwards == nil { // DEL does not validate
		if err := c.parseForwards(); err != nil {
			return false, err
		}
	}
	if c.maps == nil && len(c.forwards) > 0 {
		c.addrs = containerAddrs(s)
		var err error
		if c.maps, err = mappings(c.forwards, c.addrs); err != nil {
			return false, err
		}
	}
	return len(c.forwards) > 0, nil
}

// Rules implements [chained.Ruler].
func (c *Config) Rules(s *chained.Session) ([]kernel.Element, error) {
	if ok, err := c.prepare(s); !ok {
		return nil, err
	}
	backend, err := c.backendOf(s)
	if err != nil {
		return nil, err
	}
	if backend == iptablesBackend {
		return c.loopbackGuard(s)
	}
	p := kernel.Publication{Mappings: c.maps, Hairpins: c.hairpins(), Shares: s.SameContainer}
	if p.When4, p.When6, err = c.conditions(); err != nil {
		return nil, err
	}
	return kernel.Publish(s.Tag, p)
}

// Apply makes the changes outside the nftables ruleset. It returns the previous result unchanged.
func (c *Config) Apply(_ context.Context, s *chained.Session, _ *cni.Result) error {
	if ok, err := c.prepare(s); !ok {
		return err
	}
	if err := c.refuseReference(s); err != nil {
		return err
	}
	backend, err := c.backendOf(s)
	if err != nil {
		return err
	}
	if backend == iptablesBackend {
		if err := c.applyIPTables(s); err != nil {
			return err
		}
	}
	if err := forgetStale(s, c.maps); err != nil {
		return err
	}
	if err := c.openLoopback(s); err != nil {
		return err
	}
	c.warnUnserved(s)
	return c.moved(s, backend)
}

// Verify checks the rules of iptables. The elements of nftables have been checked already.
func (c *Config) Verify(ctx context.Context, s *chained.Session) error {
	if ok, err := c.prepare(s); !ok {
		return err
	}
	backend, err := c.backendOf(s)
	if err != nil {
		return err
	}
	if backend == iptablesBackend {
		return c.verifyIPTables(s)
	}
	s.WarnOfMoves(c.Move(ctx, s, true))
	return nil
}

// VerifyReference checks the iptables rules, which the upstream plugin makes by default.
func (c *Config) VerifyReference(_ context.Context, s *chained.Session) error {
	if _, err := c.prepare(s); err != nil {
		return err
	}
	return c.verifyIPTables(s)
}

// Released deletes the kernel's flows for mappings that have been removed.
func (c *Config) Released(_ context.Context, s *chained.Session, held []kernel.Held) error {
	var gone []kernel.PortMapping
	for _, h := range held {
		if m, ok := kernel.Published(h); ok {
			gone = append(gone, m)
		}
	}
	return forgetGone(s, gone)
}

// Remove removes the rules of iptables, and the rules of the upstream plugin.
func (c *Config) Remove(_ context.Context, s *chained.Session, gone chained.Gone) error {
	return errors.Join(c.removeIPTables(s, gone), removeReference(s, gone))
}

// Status reports whether the kernel and the tools support the backend.
func (c *Config) Status(ctx context.Context, _ *plugin.Call) error {
	switch c.backend() {
	case iptablesBackend:
		return iptablesAvailable(cni.CodeNotAvailable)
	case autoBackend:
		return session.NATStatus(ctx, kernel.Publishing)
	}
	if err := session.Lacking(kernel.FeatureNFT); err != nil {
		return err
	}
	if err := kernel.Buildable(ctx, kernel.Publishing); err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err).
			WithDetails("install a kernel built with CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_FIB_INET, " +
				"CONFIG_NF_CONNTRACK and CONFIG_NF_CONNTRACK_LABELS")
	}
	return nil
}

// warnUnserved warns of mappings that forward nothing, because the container has no address of the
// family of their hostIP.
func (c *Config) warnUnserved(s *chained.Session) {
	for _, f := range c.forwards {
		served := slices.ContainsFunc(c.addrs, func(a netip.Prefix) bool {
			return f.to(familyOf(a.Addr()))
		})
		if f.hostIP.IsValid() && !served {
			s.Log.Warn("host port forwards nothing: the container has no address of the family of hostIP",
				"port", f.hostPort, "protocol", f.protocol, "hostIP", f.hostIP)
		}
	}
}

// containerAddrs returns the addresses that ports lead to: the first address of each family of the
// container's interface, with prefix length.
func containerAddrs(s *chained.Session) (addrs []netip.Prefix) {
	var have [2]bool
	for _, ip := range s.PrevIPs() {
		if a := ip.Address; !have[familyOf(a.Addr())] {
			have[familyOf(a.Addr())] = true
			addrs = append(addrs, a)
		}
	}
	return addrs
}
