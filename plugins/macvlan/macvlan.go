package macvlan

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	attach.Segment

	// Master is the parent interface, by its name or an alternative name. The default is the
	// interface of the default route.
	Master string `json:"master"`
	// LinkInContainer looks up Master, or the default route, in the container instead of the host.
	LinkInContainer bool `json:"linkInContainer"`
	// Mode selects which containers on the same parent can reach each other: with "bridge" all of
	// them; with "private" none; with "vepa" those for which an external switch sends the frames
	// back. With "passthru" one container uses the parent exclusively, with the parent's MAC
	// address.
	Mode Mode `json:"mode" enum:"bridge,private,vepa,passthru" default:"bridge"`
	// MTU is the MTU in bytes, at most the MTU of Master; 0 selects the MTU of Master.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// MAC is the MAC address of the interface. The capability mac and MAC in CNI_ARGS take
	// precedence. Without any of them the kernel chooses an address.
	MAC string `json:"mac"`
	// BCQueueLen is the number of broadcast and multicast packets that can wait to be copied to the
	// interfaces of the parent; 0 selects the kernel's default, 1000.
	BCQueueLen uint32 `json:"bcqueuelen"`

	mac net.HardwareAddr // derived from the call by [Config.Validate]
}

// Mode is a mode of macvlan (ip-link(8)).
type Mode string

// The modes.
const (
	Bridge   Mode = "bridge"
	Private  Mode = "private"
	VEPA     Mode = "vepa"
	Passthru Mode = "passthru"
)

const kind = "macvlan"

// Plugin is the definition of macvlan.
var Plugin = attach.Define(plugin.Info{
	Name:         kind,
	About:        "connects a container to the network of an interface, with its own MAC address",
	Capabilities: []string{"mac"},
	Args:         []string{"MAC"},
	Doc:          doc,
}, attach.Traits{
	Kind: kind,
	DNS:  attach.DNSOfConfiguration,
	Texts: attach.Texts{
		NoPrev: "required prevResult missing",
		NoLink: "container Interface name in prevResult: %s not found",
		Kind:   "error: Container interface %s not of type %s",
		MAC:    "interface %s Mac %s doesn't match container Mac: %s",
		Other:  "sandbox in prevResult  doesn't match configured netns: %s",
	},
}, func() attach.Maker { return new(Config) })

func (c *Config) mode() Mode { return cmp.Or(c.Mode, Bridge) }

// Validate refuses configurations that are invalid with every parent.
func (c *Config) Validate(call *plugin.Call) (err error) {
	switch m := c.mode(); m {
	case Bridge, Private, VEPA, Passthru:
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unknown macvlan mode: %q", m).
			WithDetails(fmt.Sprintf("mode must be %q, %q, %q or %q", Bridge, Private, VEPA,
				Passthru))
	}
	if call.Command != cni.Add { // ADD compares the MTU with the parent's
		if err := attach.ValidateMTU(c.MTU); err != nil {
			return err
		}
	}
	c.mac, err = attach.AskedMAC(call, c.MAC)
	return err
}

// Status returns an error if the parent does not exist.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	return attach.ParentStatus(ctx, call, c.Master, c.LinkInContainer)
}

// Make creates the macvlan in the container.
func (c *Config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	parent, where, err := s.Parent(c.Master, c.LinkInContainer)
	if err != nil {
		return nil, err
	}
	if err := attach.CheckMTU(c.MTU, parent); err != nil {
		return nil, err
	}
	return s.Made(s.AddLink(kernel.NewLink{
		Kind: kind, MAC: c.mac, MTU: c.MTU,
		Parent: parent, ParentSpace: where, Mode: string(c.mode()), BCQueueLen: c.BCQueueLen,
	}))
}

// Verify compares the mode with the configuration and requires the parent.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	const text = "container macvlan mode %s does not match expected value: %s"
	if err := attach.CheckMode(link, string(c.mode()), text); err != nil {
		return err
	}
	return s.CheckParent(c.Master, c.LinkInContainer)
}
