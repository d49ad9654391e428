package attach

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// Traits are the static properties of a plugin.
type Traits struct {
	// Kind is the kind of the container's link in rtnetlink: CHECK expects it, DEL deletes it, and
	// STATUS requires it. "" stands for any kind.
	Kind string

	DNS DNS // source of the DNS settings in the result

	// Texts are the messages of CHECK that differ between upstream plugins.
	Texts Texts

	// Inherits makes the container's interface, without IPAM, take the addresses and routes of the
	// previous result, if there is one, and replace its interfaces.
	Inherits bool
}

// Texts are the messages of CHECK that differ between upstream plugins. "" stands for the most
// common text.
type Texts struct {
	NoPrev string // prevResult is missing
	NoLink string // operand: the container's interface
	Kind   string // operands: the container's interface, the expected kind
	MAC    string // operands: the container's interface, the MAC address in prevResult, the real one
	Other  string // prevResult has no matching interface in the container; operand: CNI_NETNS
}

func (t Texts) orDefault() Texts {
	return Texts{
		NoPrev: cmp.Or(t.NoPrev, "Required prevResult missing"),
		NoLink: cmp.Or(t.NoLink, "Container Interface name in prevResult: %s not found"),
		Kind:   cmp.Or(t.Kind, "Error: Container interface %s not of type %s"),
		MAC:    cmp.Or(t.MAC, "Interface %s Mac %s doesn't match container Mac: %s"),
		Other:  cmp.Or(t.Other, "Sandbox in prevResult  doesn't match configured netns: %s"),
	}
}

// DNS is a source of the DNS settings in a result.
type DNS int

const (
	DNSOfAny           DNS = iota // the configuration's, or else IPAM's
	DNSOfConfiguration            // the configuration's only
	DNSOfIPAM                     // IPAM's only
)

// Define returns the definition of a plugin. new returns an empty configuration of it.
func Define(i plugin.Info, t Traits, new func() Maker) plugin.Definition {
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		m := new()
		return m, &Plugin{m, t}
	})
}

// Plugin implements [plugin.Plugin] for a Maker.
type Plugin struct {
	Maker
	Traits
}

// Validate implements [plugin.Validator].
func (p *Plugin) Validate(c *plugin.Call) error {
	if err := p.validateCommon(c); err != nil {
		return err
	}
	if v, ok := p.Maker.(plugin.Validator); ok { // which may require ipam
		if err := v.Validate(c); err != nil {
			return err
		}
	}
	given := c.IPAM.Type != "" || p.Inherits && c.Prev != nil && len(c.Prev.IPs) > 0
	if !given && c.Version.SameForm(cni.V010) {
		return cni.Errorf(cni.CodeInvalidConfig, "cannot convert: no valid IP addresses").
			WithDetails(fmt.Sprintf("CNI version %v cannot describe a network without ipam; "+
				"add ipam or use cniVersion 0.3.0 or newer", c.Version))
	}
	return nil
}

// validateCommon checks the part of a configuration that all interface plugins share.
func (p *Plugin) validateCommon(c *plugin.Call) error {
	if c.IPAM.Type != "" {
		if err := cni.ValidatePluginType(c.IPAM.Type); err != nil {
			return fmt.Errorf("ipam: %w", err)
		}
	}
	if err := p.attachCommon().SecondDefaultRoute.validate(); err != nil {
		return err
	}
	if err := p.Options().DAD.validate(); err != nil {
		return err
	}
	return p.masq().validate(c.Env, c.Name)
}

// Advise implements [plugin.Advisor]: it explains why masquerading uses iptables.
func (p *Plugin) Advise(ctx context.Context, c *plugin.Call) ([]string, error) {
	return p.masq().advise(ctx, subnets(c.Stdin()))
}
