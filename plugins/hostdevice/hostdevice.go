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

// Config is the configuration of the plugin. Its RuntimeConfig is in the place of that of [plugin.Common].
type Config struct {
	attach.Common
	attach.Segment

	// Device is the name of the device in the host, or an alternative name. Of several ways to name it this counts first,
	// then come hwaddr, kernelpath, pciBusID and, for an auxiliary device, the runtime's deviceID.
	Device string `json:"device"`

	// HWAddr is its hardware address. The first link that has it counts.
	HWAddr string `json:"hwaddr"`

	// KernelPath is its folder below /sys/devices/, which has a folder net.
	KernelPath string `json:"kernelpath"`

	// PCIBusID is its PCI address, as 0000:3b:00.1. It can be the one of a virtio device.
	PCIBusID string `json:"pciBusID"`

	// DPDKMode says that user space drives a device that has no PCI address. Of one that has, the driver tells.
	DPDKMode bool `json:"DPDKMode"`

	// DataDir is where the plugin remembers what the device was in the host.
	DataDir string `json:"dataDir" default:"/run/cni/host-device"`

	// RuntimeConfig are the capability arguments.
	RuntimeConfig struct {
		// DeviceID is a PCI address, which counts instead of pciBusID, or the name of an auxiliary device, as mlx5_core.sf.4.
		DeviceID string `json:"deviceID"`
	} `json:"runtimeConfig"`

	sys    sysfs
	device func() (wanted, error) // see [Config.wanted]; nil until that is called
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
	}, attach.Traits{DNS: attach.DNSOfConfiguration}, func() attach.Maker { return &Config{sys: sysfs(root)} })
}

// Options implements [attach.Maker].
func (c *Config) Options() attach.Options {
	w, err := c.wanted()
	return attach.Options{DAD: c.Segment.Options().DAD, NoLink: err == nil && w.dpdk}
}

// Validate refuses what cannot name a device. That nothing does is for ADD to say: only then the runtime has chosen one.
func (c *Config) Validate(call *plugin.Call) error {
	_, err := c.wanted()
	if errors.Is(err, errNoDevice) {
		return nil
	}
	return err
}

// Make moves the device.
func (c *Config) Make(ctx context.Context, s *attach.Session) ([]cni.Interface, error) {
	w, err := c.wanted()
	if err != nil {
		return nil, err
	}
	if w.dpdk {
		return []cni.Interface{{Name: s.IfName, Sandbox: s.Netns}}, nil
	}
	if err := s.Sandbox.Lock(ctx); err != nil { // against another ADD of the same attachment
		return nil, err
	}
	memory, unlock, err := c.open(s)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := memory.settle(); err != nil {
		s.Log.Warn("another attachment's device in the host is not what it was", "err", err)
	}
	s.Tx.Keep() // that has nothing to do with this ADD
	l, err := c.sys.find(s.Host, w)
	if err != nil {
		return nil, err
	}
	in, err := memory.lend(l)
	if errors.Is(err, unix.EEXIST) {
		return nil, cni.Rephrase(err, "failed to move link failed to move %q (host: %q) to container NS: file exists",
			s.IfName, l.Name)
	}
	if errors.Is(err, unix.EINVAL) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err).WithDetails("some links, such as lo, belong to a namespace and cannot leave it")
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
