package dummy

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
}

// Plugin is the definition of dummy.
var Plugin = attach.Define(plugin.Info{
	Name:  "dummy",
	About: "gives a container an interface without traffic to keep addresses on",
	Doc:   doc,
}, attach.Traits{
	Kind:  "dummy",
	DNS:   attach.DNSOfIPAM, // as the reference plugin's
	Texts: attach.Texts{NoPrev: "dummy: Required prevResult missing"},
}, func() attach.Maker { return new(Config) })

// Validate refuses what would hold no address.
func (c *Config) Validate(call *plugin.Call) error {
	if call.IPAM.Type == "" {
		return cni.Errorf(cni.CodeInvalidConfig, "dummy interface requires an IPAM configuration").
			WithDetails(`{"type": "static", "addresses": [...]} gives it the addresses named there`)
	}
	return nil
}

// Make makes the link.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	return s.Made(s.Sandbox.Links.Add(kernel.NewLink{Name: s.IfName, Kind: "dummy", Alias: s.Tag}))
}
