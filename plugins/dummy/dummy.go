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
	About: "gives a container an interface without traffic that holds addresses",
	Doc:   doc,
}, attach.Traits{
	Kind:  "dummy",
	DNS:   attach.DNSOfIPAM, // as upstream
	Texts: attach.Texts{NoPrev: "dummy: Required prevResult missing"},
}, func() attach.Maker { return new(Config) })

// Validate requires ipam.
func (c *Config) Validate(call *plugin.Call) error {
	if call.IPAM.Type == "" {
		return cni.Errorf(cni.CodeInvalidConfig, "dummy interface requires an IPAM configuration").
			WithDetails(`{"type": "static", "addresses": [...]} assigns the addresses listed there`)
	}
	return nil
}

// Make creates the link.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	return s.Made(s.Sandbox.Links.Add(kernel.NewLink{Name: s.IfName, Kind: "dummy", Alias: s.Tag}))
}
