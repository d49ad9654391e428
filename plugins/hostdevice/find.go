package hostdevice

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// wanted identifies the device that a call asks for.
type wanted struct {
	name       string
	mac        net.HardwareAddr
	kernelPath string // relative to /sys/devices
	pci, aux   string // names of the device on its bus
	dpdk       bool   // a user-space driver uses the device
}

// sysfs is the directory where sysfs(5) is mounted.
type sysfs string

// userSpace are the drivers that hand a device over to user space.
var userSpace = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}

// errNoDevice has the text of the upstream plugin.
var errNoDevice = errors.New(`specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)

// wanted returns the device of the configuration. It reads sysfs only once.
func (c *Config) wanted() (wanted, error) {
	if c.device == nil {
		c.device = sync.OnceValues(func() (wanted, error) { return c.sys.wanted(c) })
	}
	return c.device()
}

// wanted determines the device from the configuration and reads its driver from sysfs.
func (sys sysfs) wanted(c *Config) (w wanted, err error) {
	w = wanted{name: c.Device, pci: c.PCIBusID, dpdk: c.DPDKMode}
	if err := sys.identify(&w, c.RuntimeConfig.DeviceID); err != nil {
		return w, err
	}
	if w.name == "" && c.HWAddr == "" && c.KernelPath == "" && w.pci == "" && w.aux == "" {
		return w, cni.Errorf(cni.CodeInvalidConfig, "%w", errNoDevice)
	}
	if c.HWAddr != "" {
		if w.mac, err = net.ParseMAC(c.HWAddr); err != nil {
			return w, unfound("failed to parse MAC address %q: %w", c.HWAddr, err).
				WithDetails("set hwaddr to a MAC address, such as 02:00:5e:00:00:01")
		}
	}
	if c.KernelPath != "" {
		below, ok := strings.CutPrefix(c.KernelPath, "/sys/devices/")
		if !ok || slices.Contains(strings.Split(below, "/"), "..") {
			return w, unfound("kernel device path %q must be absolute and begin with /sys/devices/",
				c.KernelPath).
				WithDetails("key kernelpath")
		}
		w.kernelPath = below
	}
	if w.pci == "" {
		return w, nil
	}
	if !isFileName(w.pci) {
		return w, cni.Errorf(cni.CodeInvalidConfig, "pciBusID: %q is not a PCI address", w.pci)
	}
	device := sys.path("bus/pci/devices", w.pci)
	if _, err := os.Lstat(device); err != nil {
		return w, cni.Errorf(cni.CodeInvalidConfig, "error with host device: %w", err).
			WithDetails("there is no PCI device " + w.pci).Verbatim()
	}
	driver, err := os.Readlink(filepath.Join(device, "driver"))
	if err != nil {
		return w, cni.Errorf(cni.CodeInvalidConfig, "driver of PCI device %s: %w", w.pci, err).
			WithDetails("check that the device is bound to a driver")
	}
	w.dpdk = slices.Contains(userSpace, filepath.Base(driver))
	return w, nil
}

// identify determines the bus of the device that the runtime has chosen.
func (sys sysfs) identify(w *wanted, id string) error {
	switch {
	case id == "":
		return nil
	case isFileName(id) && isThere(sys.path("bus/pci/devices", id)):
		w.pci = id
		return nil
	case isFileName(id) && isThere(sys.path("bus/auxiliary/devices", id)):
		w.pci, w.aux = "", id
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "runtime config DeviceID %s not found or unsupported",
		id).
		WithDetails("runtimeConfig.deviceID: no PCI or auxiliary device has that name").Verbatim()
}

// unfound returns the error for a device that is not in the host, in upstream's words.
func unfound(format string, args ...any) *cni.Error {
	return cni.Errorf(cni.CodeInvalidConfig, "failed to find host device: "+format, args...).
		Verbatim()
}

// find returns the link of the device in the host.
func (sys sysfs) find(host *kernel.Space, w wanted) (kernel.Link, error) {
	l, err := sys.lookUp(host, w)
	const hint = "it may already be in a container"
	switch path := (*fs.PathError)(nil); {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &path):
		return l, unfound("failed to read directory %s: %q", path.Path, err).WithDetails(hint)
	case errors.Is(err, kernel.ErrNoLink) && w.name == "" && w.mac != nil:
		return l, unfound("failed to find physical interface").
			WithDetails(err.Error() + "; " + hint)
	case errors.Is(err, kernel.ErrNoLink):
		return l, unfound("Link not found").WithDetails(err.Error() + "; " + hint)
	}
	return l, err
}

func (sys sysfs) lookUp(host *kernel.Space, w wanted) (kernel.Link, error) {
	switch {
	case w.name != "":
		return host.Links.ByName(w.name)
	case w.mac != nil:
		return byMAC(host, w.mac)
	case w.kernelPath != "":
		return linkOf(host, sys.path("devices", w.kernelPath, "net"))
	case w.pci != "":
		return linkOf(host, sys.pciNet(w.pci))
	}
	return linkOf(host, sys.path("bus/auxiliary/devices", w.aux, "net"))
}

// byMAC returns the link with the MAC address; if there are several, the one with the lowest index.
func byMAC(host *kernel.Space, mac net.HardwareAddr) (found kernel.Link, err error) {
	links, err := host.Links.All()
	for _, l := range links {
		if bytes.Equal(l.MAC, mac) && (found.Index == 0 || l.Index < found.Index) {
			found = l
		}
	}
	if err == nil && found.Index == 0 {
		err = fmt.Errorf("link with address %s: %w", mac, kernel.ErrNoLink)
	}
	return found, err
}

// linkOf returns the first link in a directory that contains links.
func linkOf(host *kernel.Space, dir string) (kernel.Link, error) {
	links, err := os.ReadDir(dir)
	if err == nil && len(links) == 0 {
		err = fmt.Errorf("link in %s: %w", dir, kernel.ErrNoLink)
	}
	if err != nil {
		return kernel.Link{}, err
	}
	return host.Links.ByName(links[0].Name())
}

// pciNet returns the directory of the links of a PCI device. The links of a virtio device are one
// level deeper.
func (sys sysfs) pciNet(address string) string {
	device := sys.path("bus/pci/devices", address)
	children, _ := os.ReadDir(device)
	for _, c := range children {
		if below := filepath.Join(device, c.Name(), "net"); strings.HasPrefix(c.Name(), "virtio") &&
			isThere(below) {
			return below
		}
	}
	return filepath.Join(device, "net")
}

func (sys sysfs) path(elements ...string) string {
	return filepath.Join(append([]string{string(sys)}, elements...)...)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isFileName reports whether a name stays within its directory.
func isFileName(name string) bool {
	return name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}
