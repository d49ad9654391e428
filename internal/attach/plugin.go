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
	Kind string // of rtnetlink, of the container's link: what CHECK expects, DEL deletes and STATUS asks for; "": any
	DNS  DNS    // source of the DNS settings in the result

	// Texts are the messages of CHECK in which the upstream plugin differs from others.
	Texts Texts

	// Inherits says that without IPAM the container's interface gets the addresses and routes of the previous result, if there
	// is one, and takes the place of the interfaces there.
	Inherits bool
}

// Texts are the messages of CHECK in which upstream's plugins differ. "" stands for the words that
// most of them have.
type Texts struct {
	NoPrev string // there is no prevResult
	NoLink string // operand: the container's interface
	Kind   string // operands: the container's interface, the kind that it should have
	MAC    string // operands: the container's interface, the MAC address in prevResult, the one it has
	Other  string // prevResult has no such interface in the container; operand: CNI_NETNS
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
	DNSOfAny           DNS = iota // that of the configuration; without, that of IPAM
	DNSOfConfiguration            // never that of IPAM
	DNSOfIPAM                     // never that of the configuration
)

// Define describes a plugin. new returns an empty configuration of it.
func Define(i plugin.Info, t Traits, new func() Maker) plugin.Definition {
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		m := new()
		return m, &Plugin{m, t}
	})
}

// Plugin makes a [plugin.Plugin] of a Maker.
type Plugin struct {
	Maker
	Traits
}

// Validate implements [plugin.Validator].
func (p *Plugin) Validate(c *plugin.Call) error {
	if err := p.validateCommon(c); err != nil {
		return err
	}
	if v, ok := p.Maker.(plugin.Validator); ok {
		return v.Validate(c)
	}
	return nil
}

// validateCommon checks what all configurations have in common.
func (p *Plugin) validateCommon(c *plugin.Call) error {
	given := c.IPAM.Type != "" || p.Inherits && c.Prev != nil && len(c.Prev.IPs) > 0
	if !given && c.Version.SameForm(cni.V010) {
		return cni.Errorf(cni.CodeInvalidConfig, "cannot convert: no valid IP addresses").
			WithDetails(fmt.Sprintf("CNI version %v cannot describe a network without ipam; "+
				"add ipam or use cniVersion 0.3.0 or newer", c.Version))
	}
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

// Advise implements [plugin.Advisor]: it says where masquerading uses iptables.
func (p *Plugin) Advise(ctx context.Context, c *plugin.Call) ([]string, error) {
	return p.masq().advise(ctx, subnets(c.Stdin()))
}
