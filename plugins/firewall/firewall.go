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
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common

	// Backend is the firewall that has to let the addresses through: "firewalld", "iptables" or "nftables". With "auto", as
	// with any other value, it is firewalld where that is running, else iptables where its FORWARD chain would stop them,
	// else nftables.
	Backend backend `json:"backend" default:"auto"`
	// AdminChain is a chain of iptables for rules of the user, which come before those for the containers.
	AdminChain string `json:"iptablesAdminChainName" default:"CNI-ADMIN"`
	// Zone is the zone of firewalld that the addresses become sources of.
	Zone string `json:"firewalldZone" default:"trusted"`
	// IngressPolicy says from where the containers can be reached: from everywhere ("open"), not from other bridges that have
	// a policy ("same-bridge"), nor from each other ("isolated").
	IngressPolicy ingressPolicy `json:"ingressPolicy" enum:"open,same-bridge,isolated" default:"open"`
}

// Plugin is the definition of firewall.
var Plugin = chained.Define(plugin.Info{
	Name:     "firewall",
	About:    "lets a container's addresses through the host's firewall, and isolates bridges",
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

// maxChain is the length of the longest name of a chain of iptables.
const maxChain = 28

// Validate checks the policy, and that the name of the chain is one: it becomes a word of a rule.
func (c *Config) Validate(*plugin.Call) error {
	if p := c.IngressPolicy; !c.open() && p != policySameBridge && p != policyIsolated {
		return cni.Errorf(cni.CodeInvalidConfig, "unknown ingress policy: %q", p).
			WithDetails("there are open, same-bridge and isolated")
	}
	chain := c.adminChain()
	foreign := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\!`, r) }
	if len(chain) > maxChain || chain[0] == '-' || strings.ContainsFunc(chain, foreign) {
		return cni.Errorf(cni.CodeInvalidConfig, "iptablesAdminChainName: %q cannot be a chain of iptables", chain).
			WithDetails("a name has up to 28 letters, digits and dashes")
	}
	return nil
}

// Status says what the backend that was asked for lacks.
func (c *Config) Status(ctx context.Context, _ *plugin.Call) error {
	switch c.Backend {
	case backendNFT:
		return session.Lacking(kernel.FeatureNFT)
	case backendIPTables:
		return lacksIPTables(cni.CodeNotAvailable)
	case backendFirewalld:
		return lacksFirewalld(ctx, cni.CodeNotAvailable)
	}
	return nil
}

// Rules admits the addresses and, with a policy, isolates what they are behind, whatever the backend. Where the kernel has no
// nftables, iptables and firewalld let through all the same, but of them only iptables can isolate.
func (c *Config) Rules(s *chained.Session) ([]kernel.Element, error) {
	if c.Backend != backendNFT && (c.open() || c.Backend != backendFirewalld) {
		if err := s.Host.Rules.Available(); errors.Is(err, kernel.ErrNoNFT) {
			return nil, nil
		}
	}
	entries := kernel.Admit(addresses(s)...)
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

// Apply has the backend let the addresses through.
func (c *Config) Apply(ctx context.Context, s *chained.Session, _ *cni.Result) error {
	addrs := addresses(s)
	b, err := c.choose(ctx, s, addrs)
	if err != nil {
		return err
	}
	switch b {
	case backendFirewalld:
		if err := c.addSources(ctx, s, addrs); err != nil {
			return cmp.Or(lacksFirewalld(ctx, cni.CodeUnsupportedField), err)
		}
	case backendIPTables:
		return c.eachEdit(s, addrs, s.Host.Rules.EditIPTables)
	}
	return nil
}

// Verify looks for what Apply makes.
func (c *Config) Verify(ctx context.Context, s *chained.Session) error {
	addrs := addresses(s)
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

// Released has nothing to do: Remove releases the entries itself.
func (c *Config) Released(context.Context, *chained.Session, []kernel.Held) error { return nil }

// VerifyReference looks for what the reference plugin makes by default, which is what the backend iptables makes.
func (c *Config) VerifyReference(_ context.Context, s *chained.Session) error {
	return c.checkRules(s, addresses(s))
}

func (c *Config) checkRules(s *chained.Session, addrs []netip.Addr) error {
	return c.eachEdit(s, addrs, func(t kernel.IPTablesTable, e kernel.IPTablesEdit) error { return check(s, t, e) })
}

// check looks for the rules of an edit.
func check(s *chained.Session, t kernel.IPTablesTable, e kernel.IPTablesEdit) error {
	return s.Host.Rules.CheckIPTables(t, slices.Concat(e.Common, e.Rules))
}

// eachEdit calls do with what is wanted in the filter table of each family that has addresses.
func (c *Config) eachEdit(s *chained.Session, addrs []netip.Addr, do func(kernel.IPTablesTable, kernel.IPTablesEdit) error) error {
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

// addresses are all that the previous result has, each once, whatever interface they are of. Those of other interfaces that
// CHECK is told of may have come later.
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
