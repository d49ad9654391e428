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

	// Table is a routing table that another program fills. The rules select this table, and no
	// routes are moved. Without it, each address gets its own table: the first one, from 100 on,
	// that is not in use.
	Table *int `json:"table" min:"1" max:"4294967295"`

	// Gateways are the gateways of the default routes, at most one per family. They replace the
	// gateways of the interface.
	Gateways []string `json:"gateways"`

	// AddSourceHints keeps routes to the networks of the addresses in the main table, so that
	// programs that choose no source address send from these addresses.
	AddSourceHints bool `json:"addSourceHints" default:"false"`

	via gateways // Gateways, parsed by [Config.Validate]; nil with Table
}

// Plugin is the definition of sbr.
var Plugin = chained.Define(plugin.Info{
	Name: "sbr",
	About: "routes by source address: replies leave through the interface on which the requests " +
		"arrived",
	Role: plugin.RoleChained,
	Doc:  doc,
}, chained.Traits{
	Contained: true,
	NoPrev:    chained.NoPrev{Add: "This plugin must be called as chained plugin"},
}, func() chained.Decorator { return new(Config) })

// Validate refuses invalid tables, invalid gateways and several gateways of one family.
func (c *Config) Validate(*plugin.Call) (err error) {
	if t := c.Table; t != nil {
		if *t < 1 || int64(*t) > math.MaxUint32 {
			return cni.Errorf(cni.CodeInvalidConfig, "table: %d is not a number from 1 to %d", *t,
				uint32(math.MaxUint32))
		}
		return nil
	}
	c.via, err = parseGateways(c.Gateways)
	return err
}

// Status returns an error if the kernel lacks policy rules.
func (c *Config) Status(context.Context, *plugin.Call) error {
	return session.Lacking(kernel.FeaturePolicyRules)
}

// Apply adds the rules, fills their tables, and then removes the routes from the main table.
func (c *Config) Apply(ctx context.Context, s *chained.Session, _ *cni.Result) error {
	ips, err := addresses(s)
	if err != nil {
		return err
	}
	if len(ips) == 0 { // as upstream
		s.Log.Warn("prevResult has no address of this interface; no traffic is routed by source")
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

// leadTo adds the missing rules for the table of the configuration.
func (c *Config) leadTo(s *chained.Session, ips []cni.IP, rules []kernel.PolicyRule) error {
	for _, ip := range ips {
		if _, ok := c.ruleOf(ip, rules); ok {
			continue
		}
		if err := s.Sandbox.Routes.AddRule(kernel.PolicyRule{Src: single(ip),
			Table: *c.Table}); err != nil {
			return err
		}
	}
	return nil
}

// ruleOf returns the rule that selects the table of an address: the first one that has no other
// condition and, if the configuration has a table, selects that table.
func (c *Config) ruleOf(ip cni.IP, rules []kernel.PolicyRule) (kernel.PolicyRule, bool) {
	i := slices.IndexFunc(rules, func(r kernel.PolicyRule) bool {
		return !r.More && r.Src == single(ip) && (c.Table == nil || r.Table == *c.Table)
	})
	if i < 0 {
		return kernel.PolicyRule{}, false
	}
	return rules[i], true
}

// addresses returns the addresses of the interface in the previous result, without duplicates. A
// previous result without any address is an error.
func addresses(s *chained.Session) ([]cni.IP, error) {
	var list []cni.IP
	for _, ip := range s.PrevIPs() {
		if !slices.ContainsFunc(list, func(have cni.IP) bool {
			return have.Address.Addr() == ip.Address.Addr()
		}) {
			list = append(list, ip)
		}
	}
	if len(s.Prev.IPs) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "No IP addresses supplied on interface: %s",
			s.IfName).
			WithDetails(
				"prevResult has no addresses; place sbr after a plugin that assigns addresses")
	}
	return list, nil
}

func single(ip cni.IP) netip.Prefix {
	return netip.PrefixFrom(ip.Address.Addr(), ip.Address.Addr().BitLen())
}
