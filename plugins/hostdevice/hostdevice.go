package hostdevice

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin. Its RuntimeConfig shadows the field of
// [plugin.Common].
type Config struct {
	attach.Common
	attach.Segment

	// Device is the name or an alternative name of the device in the host. If several keys select a
	// device, the order of precedence is device, hwaddr, kernelpath, pciBusID and, for an auxiliary
	// device, the runtime's deviceID.
	Device string `json:"device"`

	// HWAddr is the MAC address of the device. If several links have it, the one with the lowest
	// index is used.
	HWAddr string `json:"hwaddr"`

	// KernelPath is the directory of the device below /sys/devices/ that contains a directory net.
	KernelPath string `json:"kernelpath"`

	// PCIBusID is the PCI address of the device, such as 0000:3b:00.1. The device can be a virtio
	// device.
	PCIBusID string `json:"pciBusID"`

	// DPDKMode declares that a user-space driver uses a device without a PCI address. For a PCI
	// device the plugin reads the driver from sysfs and ignores this key.
	DPDKMode bool `json:"DPDKMode"`

	// UseInterfaceNetwork gives the device in the container the addresses, routes and policy rules
	// that it has in the host, in addition to what ipam returns: all IPv4 addresses of global scope,
	// the IPv6 addresses without a lifetime, the routes of all tables that programs or
	// administrators made, and the rules for the addresses that lead to these tables.
	UseInterfaceNetwork bool `json:"useInterfaceNetwork" default:"false"`

	// DataDir is the directory where the plugin records the state of the devices in the host.
	DataDir string `json:"dataDir" default:"/run/cni/host-device"`

	// RuntimeConfig are the capability arguments.
	RuntimeConfig struct {
		// DeviceID is a PCI address, which takes precedence over pciBusID, or the name of an
		// auxiliary device, such as mlx5_core.sf.4.
		DeviceID string `json:"deviceID"`
	} `json:"runtimeConfig"`

	sys    sysfs
	device func() (wanted, error) // see [Config.wanted]; nil until the first call
	host   *hostNetwork           // what UseInterfaceNetwork has read; nil without it
}

const defaultDataDir = "/run/cni/host-device"

// Plugin is the definition of host-device.
var Plugin = define("/sys")

func define(root string) plugin.Definition {
	return attach.Define(plugin.Info{
		Name:         "host-device",
		About:        "gives a container a network device of the host",
		Capabilities: []string{"deviceID"},
		Doc:          doc,
	}, attach.Traits{DNS: attach.DNSOfConfiguration}, func() attach.Maker {
		return &Config{sys: sysfs(root)}
	})
}

// Options implements [attach.Maker].
func (c *Config) Options() attach.Options {
	w, err := c.wanted()
	return attach.Options{DAD: c.Segment.Options().DAD, NoLink: err == nil && w.dpdk,
		NoAddresses: c.UseInterfaceNetwork}
}

// Validate refuses invalid device names. ADD reports a missing device, because the runtime may
// choose it only then.
func (c *Config) Validate(call *plugin.Call) error {
	w, err := c.wanted()
	if errors.Is(err, errNoDevice) {
		return nil
	}
	if err == nil && w.dpdk && c.UseInterfaceNetwork {
		return cni.Errorf(cni.CodeInvalidConfig,
			"useInterfaceNetwork is not supported for dpdk-bound devices").
			WithDetails("such a device has no addresses in the kernel; use ipam")
	}
	return err
}

// Make moves the device into the container.
func (c *Config) Make(ctx context.Context, s *attach.Session) ([]cni.Interface, error) {
	w, err := c.wanted()
	if err != nil {
		return nil, err
	}
	if w.dpdk {
		return []cni.Interface{{Name: s.IfName, Sandbox: s.Netns}}, nil
	}
	if !s.Sandbox.NS.Same(s.Host.NS) { // open locks the host
		if err := s.Sandbox.Lock(ctx); err != nil { // exclude another ADD of the same attachment
			return nil, err
		}
	}
	memory, unlock, err := c.open(s)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := memory.endLoans(); err != nil {
		s.Log.Warn("cannot restore another attachment's device in the host", "err", err)
	}
	s.Tx.Keep() // a rollback of this ADD keeps the changes so far
	l, err := c.sys.find(s.Host, w)
	if err != nil {
		return nil, err
	}
	var rules []kernel.PolicyRule
	if c.UseInterfaceNetwork {
		if c.host, err = readHostNetwork(s.Host, l); err != nil {
			return nil, err
		}
		rules = c.host.rules
	}
	in, err := memory.lend(l, rules)
	if errors.Is(err, unix.EEXIST) {
		return nil, cni.Rephrase(err,
			"failed to move link failed to move %q (host: %q) to container NS: file exists",
			s.IfName, l.Name)
	}
	if errors.Is(err, unix.EINVAL) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err).
			WithDetails(
				"choose another device; some links, such as lo, cannot leave their namespace")
	}
	if err != nil {
		return nil, err
	}
	return []cni.Interface{{Name: in.Name, MAC: in.MAC.String(), Sandbox: s.Netns}}, nil
}

// Verify requires that the configuration still names a device; any kind of link will do.
func (c *Config) Verify(_ context.Context, s *attach.Session, _ kernel.Link) error {
	_, err := c.wanted()
	return err
}
