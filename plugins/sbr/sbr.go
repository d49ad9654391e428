package sbr

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common

	// Table is a routing table that somebody else fills: the rules lead there, and no routes are moved. Without it each address
	// gets a table of its own, the first from 100 on that nobody uses.
	Table *int `json:"table" min:"1" max:"4294967295"`

	// Gateways are the gateways of the default routes, at most one of each family, instead of those that the interface has.
	Gateways []string `json:"gateways"`

	// AddSourceHints leaves the networks of the addresses in the main table, too, with the address as the source that senders get who
	// have chosen none.
	AddSourceHints bool `json:"addSourceHints" default:"false"`

	via gateways // Gateways, as [Config.Validate] reads them; nil with Table
}

// Plugin is the definition of sbr.
var Plugin = chained.Define(plugin.Info{
	Name:  "sbr",
	About: "routes by source address: replies leave by the interface they came in on",
	Role:  plugin.RoleChained,
	Doc:   doc,
}, chained.Traits{
	Contained: true,
	NoPrev:    chained.NoPrev{Add: "This plugin must be called as chained plugin"},
}, func() chained.Decorator { return new(Config) })

// Validate refuses tables that do not exist and gateways of which one would not count.
func (c *Config) Validate(*plugin.Call) (err error) {
	if t := c.Table; t != nil {
		if *t < 1 || *t > math.MaxUint32 {
			return cni.Errorf(cni.CodeInvalidConfig, "table: %d is not a number from 1 to %d", *t, uint32(math.MaxUint32))
		}
		return nil
	}
	c.via, err = parseGateways(c.Gateways)
	return err
}

// Status reports whether the kernel has rules.
func (c *Config) Status(context.Context, *plugin.Call) error {
	return session.Lacking(kernel.FeaturePolicyRules)
}

// Apply adds the rules, fills the tables to which they lead, and then takes the routes from the main table.
func (c *Config) Apply(ctx context.Context, s *chained.Session, _ *cni.Result) error {
	ips, err := addresses(s)
	if err != nil {
		return err
	}
	if len(ips) == 0 { // as with the upstream plugin
		s.Log.Warn("prevResult has addresses, but none of this interface: no traffic is routed by source")
		return nil
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return cni.Rephrase(err, "Cannot find network interface %s: Link not found", s.IfName)
	}
	rules, err := s.Sandbox.Routes.Rules()
	if err != nil {
		return err
	}
	if c.Table != nil {
		return c.leadTo(s, ips, rules)
	}
	return c.move(ctx, s, link, ips, rules)
}

// leadTo adds the rules that are missing to the table of the configuration.
func (c *Config) leadTo(s *chained.Session, ips []cni.IP, rules []kernel.PolicyRule) error {
	for _, ip := range ips {
		if _, ok := c.ruleOf(ip, rules); ok {
			continue
		}
		if err := s.Sandbox.Routes.AddRule(kernel.PolicyRule{Src: single(ip), Table: *c.Table}); err != nil {
			return err
		}
	}
	return nil
}

// ruleOf returns the rule that decides on the table of an address: the first that has no other condition. Where the
// configuration has a table it is the one that leads there.
func (c *Config) ruleOf(ip cni.IP, rules []kernel.PolicyRule) (kernel.PolicyRule, bool) {
	i := slices.IndexFunc(rules, func(r kernel.PolicyRule) bool {
		return !r.More && r.Src == single(ip) && (c.Table == nil || r.Table == *c.Table)
	})
	if i < 0 {
		return kernel.PolicyRule{}, false
	}
	return rules[i], true
}

// addresses returns the addresses of the interface in the previous result, each once. A previous result without any address is
// an error.
func addresses(s *chained.Session) ([]cni.IP, error) {
	var list []cni.IP
	for _, ip := range s.PrevIPs() {
		if !slices.ContainsFunc(list, func(have cni.IP) bool { return have.Address.Addr() == ip.Address.Addr() }) {
			list = append(list, ip)
		}
	}
	if len(s.Prev.IPs) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "No IP addresses supplied on interface: %s", s.IfName).
			WithDetails("prevResult has no address of it; sbr routes by source address; the plugins before it have to give one")
	}
	return list, nil
}

func single(ip cni.IP) netip.Prefix {
	return netip.PrefixFrom(ip.Address.Addr(), ip.Address.Addr().BitLen())
}
