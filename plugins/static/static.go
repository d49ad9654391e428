package static

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of an interface plugin with the ipam section of static.
type Config struct {
	plugin.Common

	// IPAM is the section that names this plugin.
	IPAM *Settings `json:"ipam"`

	ips []cni.IP // derived from the call by [Config.Validate]
}

// Settings is the ipam section.
type Settings struct {
	// Addresses are the addresses of the container. The list can be empty, but most interface
	// plugins require an address.
	Addresses []Address `json:"addresses"`
	// Routes are copied into the result unchanged.
	Routes []cni.Route `json:"routes"`
	// DNS is copied into the result unchanged.
	DNS cni.DNS `json:"dns"`
}

// Address is a configured address.
type Address struct {
	// Address is the address with its prefix length, such as 10.30.0.10/24.
	Address string `json:"address"`
	// Gateway is the gateway of the network. It is optional.
	Gateway netip.Addr `json:"gateway"`
}

// Plugin is the definition of static.
var Plugin = plugin.Define(plugin.Info{
	Name:         "static",
	About:        "returns addresses from the configuration or the runtime",
	Capabilities: []string{"ips"},
	Args:         []string{"IP", "GATEWAY"},
	Role:         plugin.RoleIPAM,
	Doc:          doc,
}, func() plugin.Plugin { return new(Config) })

// Validate determines the addresses.
func (c *Config) Validate(call *plugin.Call) (err error) {
	c.ips, err = c.addresses(call)
	return err
}

// Add returns the addresses, routes and DNS settings.
func (c *Config) Add(context.Context, *plugin.Call) (*cni.Result, error) {
	return &cni.Result{IPs: c.ips, Routes: c.IPAM.Routes, DNS: c.IPAM.DNS}, nil
}

// Del does nothing.
func (c *Config) Del(context.Context, *plugin.Call) error { return nil }

// Check requires the addresses, and their gateways if they have one, in the previous result.
func (c *Config) Check(_ context.Context, call *plugin.Call) error {
	if call.Prev == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "Required prevResult missing")
	}
	for _, want := range c.ips {
		at := slices.IndexFunc(call.Prev.IPs, func(ip cni.IP) bool {
			return ip.Address.Addr() == want.Address.Addr()
		})
		if at < 0 {
			err := fmt.Errorf("prevResult: expected address %s, found %v", want.Address,
				ipam.Addresses(call.Prev.IPs))
			return mismatch(call, want, err)
		}
		if have := call.Prev.IPs[at].Gateway; want.Gateway.IsValid() && have != want.Gateway {
			err := fmt.Errorf("prevResult: expected gateway %s of address %s, found %s",
				want.Gateway, want.Address, have)
			return mismatch(call, want, err)
		}
	}
	return nil
}

// mismatch returns err with upstream's text.
func mismatch(c *plugin.Call, want cni.IP, err error) error {
	return cni.Rephrase(err, "static: Failed to match addr %s on interface %s", want.Address.Addr(),
		c.IfName)
}
