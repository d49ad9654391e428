package firewall

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common

	// Backend is the firewall that accepts the traffic: "firewalld", "iptables" or "nftables".
	// "auto", and any other value, selects firewalld if it runs, otherwise iptables if its FORWARD
	// chain drops packets, otherwise nftables.
	Backend backend `json:"backend" default:"auto"`
	// AdminChain is an iptables chain for rules of the administrator, which come before the rules
	// for containers.
	AdminChain string `json:"iptablesAdminChainName" default:"CNI-ADMIN"`
	// Zone is the firewalld zone to which the plugin adds the addresses as sources.
	Zone string `json:"firewalldZone" default:"trusted"`
	// IngressPolicy limits the sources that reach the containers: "open" allows all, "same-bridge"
	// excludes other bridges with a policy, and "isolated" excludes containers of the same bridge
	// as well.
	IngressPolicy ingressPolicy `json:"ingressPolicy" enum:"open,same-bridge,isolated" default:"open"`
}

// Plugin is the definition of firewall.
var Plugin = chained.Define(plugin.Info{
	Name:     "firewall",
	About:    "allows container traffic in the host's firewall, and isolates containers",
	Role:     plugin.RoleChained,
	Versions: []cni.Version{cni.V040, cni.V100, cni.V110},
	Doc:      doc,
}, chained.Traits{NoPrev: chained.NoPrev{Add: "missing prevResult from earlier plugin"}}, func() chained.Decorator {
	return new(Config)
})

const defaultZone, defaultAdminChain = "trusted", "CNI-ADMIN"

func (c *Config) zone() string { return cmp.Or(c.Zone, defaultZone) }

func (c *Config) adminChain() string { return cmp.Or(c.AdminChain, defaultAdminChain) }

func (c *Config) open() bool { return c.IngressPolicy == "" || c.IngressPolicy == policyOpen }

// maxChain is the maximum length of an iptables chain name.
const maxChain = 28

// Validate checks the policy and the chain name, which becomes a word of a rule.
func (c *Config) Validate(*plugin.Call) error {
	if p := c.IngressPolicy; !c.open() && p != policySameBridge && p != policyIsolated {
		return cni.Errorf(cni.CodeInvalidConfig, "unknown ingress policy: %q", p).
			WithDetails("use open, same-bridge or isolated")
	}
	chain := c.adminChain()
	foreign := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\!`, r) }
	if len(chain) > maxChain || chain[0] == '-' || strings.ContainsFunc(chain, foreign) {
		return cni.Errorf(cni.CodeInvalidConfig,
			"iptablesAdminChainName: %q is not a valid name of an iptables chain", chain).
			WithDetails("use up to 28 letters, digits and dashes")
	}
	return nil
}

// Status reports missing requirements of the configured backend.
func (c *Config) Status(ctx context.Context, _ *plugin.Call) error {
	switch c.Backend {
	case backendNFT:
		return session.Lacking(kernel.FeatureNFT)
	case backendIPTables:
		return lacksIPTables(cni.CodeNotAvailable)
	case backendFirewalld:
		if err := lacksFirewalld(ctx, cni.CodeNotAvailable); err != nil {
			return err
		}
		if c.denied(ctx) {
			return refused(cni.CodeNotAvailable, firewalld.ErrDenied)
		}
		return nil
	}
	if err := running(ctx); errors.Is(err, errNoAnswer) {
		return unanswered(cni.CodeNotAvailable, err)
	}
	return nil
}

// Rules admits the addresses and, with a policy, isolates the bridge or link, with every backend.
// Without nftables in the kernel, iptables and firewalld still admit the addresses, but only
// iptables can isolate.
func (c *Config) Rules(s *chained.Session) ([]kernel.Element, error) {
	if c.Backend != backendNFT && (c.open() || c.Backend != backendFirewalld) {
		if err := s.Host.Rules.Available(); errors.Is(err, kernel.ErrNoNFT) {
			return nil, nil
		}
	}
	entries := kernel.Admit(reachable(s)...)
	if c.open() {
		return entries, nil
	}
	isolation, err := c.isolationOf(s)
	if err != nil {
		return nil, err
	}
	more, err := isolation.Elements(s.Tag)
	return append(entries, more...), err
}

// Apply makes the backend accept the traffic of the addresses.
func (c *Config) Apply(ctx context.Context, s *chained.Session, _ *cni.Result) error {
	addrs := reachable(s)
	b, err := c.choose(ctx, s, addrs)
	if err != nil {
		return err
	}
	switch b {
	case backendFirewalld:
		if c.Backend == backendFirewalld { // choose has not asked it
			if err := running(ctx); errors.Is(err, errNoAnswer) {
				return unanswered(cni.CodeIOFailure, err)
			}
		}
		err := c.addSources(ctx, s, addrs)
		switch {
		case errors.Is(err, firewalld.ErrDenied):
			return refused(cni.CodeIOFailure, err)
		case errors.Is(err, errNoAnswer):
			return unanswered(cni.CodeIOFailure, err)
		case err != nil:
			return cmp.Or(lacksFirewalld(ctx, cni.CodeUnsupportedField), err)
		}
	case backendIPTables:
		return c.eachEdit(s, addrs, s.Host.Rules.EditIPTables)
	}
	return nil
}

// Verify checks the rules or sources that Apply makes.
func (c *Config) Verify(ctx context.Context, s *chained.Session) error {
	addrs := reachable(s)
	b, err := c.choose(ctx, s, addrs)
	if err != nil {
		return err
	}
	switch b {
	case backendFirewalld:
		return c.checkSources(ctx, s, addrs)
	case backendIPTables:
		return c.checkRules(s, addrs)
	}
	return nil
}

// Released does nothing, because Remove releases the elements itself.
func (c *Config) Released(context.Context, *chained.Session, []kernel.Held) error { return nil }

// VerifyReference checks the iptables rules, which the upstream plugin makes by default.
func (c *Config) VerifyReference(_ context.Context, s *chained.Session) error {
	return c.checkRules(s, reachable(s))
}

func (c *Config) checkRules(s *chained.Session, addrs []netip.Addr) error {
	return c.eachEdit(s, addrs, func(t kernel.IPTablesTable, e kernel.IPTablesEdit) error {
		return check(s, t, e)
	})
}

// check requires the rules of an edit.
func check(s *chained.Session, t kernel.IPTablesTable, e kernel.IPTablesEdit) error {
	return s.Host.Rules.CheckIPTables(t, slices.Concat(e.Common, e.Rules))
}

// eachEdit calls do with the wanted rules in the filter table of each family that has addresses.
func (c *Config) eachEdit(
	s *chained.Session, addrs []netip.Addr,
	do func(kernel.IPTablesTable, kernel.IPTablesEdit) error,
) error {
	for _, f := range families(addrs) {
		e := admission(c.adminChain(), ofFamily(f, addrs))
		if !c.open() {
			i, err := c.isolationOf(s)
			if err != nil {
				return err
			}
			e = e.With(isolation(i.Interface, c.IngressPolicy))
		}
		err := do(kernel.IPTablesTable{Family: f, Name: "filter"}, e)
		if errors.Is(err, kernel.ErrNoIPTables) {
			return cmp.Or(lacksIPTables(cni.CodeUnsupportedField, f), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reachable returns the addresses that the firewall has to admit: all but loopback addresses, from
// which the host itself may send packets.
func reachable(s *chained.Session) []netip.Addr {
	return slices.DeleteFunc(addresses(s), netip.Addr.IsLoopback)
}

// addresses returns all addresses of the previous result, each once. For CHECK it returns only
// addresses of the attachment's interface, because later plugins may have added others.
func addresses(s *chained.Session) (list []netip.Addr) {
	ips := s.Prev.IPs
	if s.Command == cni.Check {
		ips = s.PrevIPs()
	}
	for _, ip := range ips {
		if a := ip.Address.Addr().Unmap(); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}
