package hostdevice_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/hostdevice"
)

// sysfs is a directory in place of /sys, in this process and in plugins that it starts. The test
// binary removes it at the end.
var sysfs = func() string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return filepath.Join(filepath.Dir(self), "sys")
}()

// The devices in sysfs: ens1 belongs to the first one; the one with a user-space driver has no
// link.
const (
	pciDevice   = "0000:3b:00.1"
	pciPath     = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1"
	virtio      = "0000:00:05.0"
	userSpace   = "0000:5e:00.0"
	unboundPCI  = "0000:5f:00.0"
	auxiliary   = "mlx5_core.sf.4"
	firstDevice = "ens1"
)

func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") == "" { // not started as the plugin
		makeSysfs()
	}
	plugintest.Main(m, append(slices.Clone(all.Plugins), suite.Plugin)...)
}

// makeSysfs creates the devices, once for all processes.
func makeSysfs() {
	pci := func(address string) string { return filepath.Join(sysfs, "bus/pci/devices", address) }
	for _, dir := range []string{
		filepath.Join(pci(pciDevice), "net", firstDevice),
		filepath.Join(sysfs, pciPath, "net", firstDevice),
		filepath.Join(pci(virtio), "virtio1/net", firstDevice), pci(userSpace), pci(unboundPCI),
		filepath.Join(sysfs, "bus/auxiliary/devices", auxiliary, "net", firstDevice),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			panic(err)
		}
	}
	for address, driver := range map[string]string{pciDevice: "ice", virtio: "virtio-pci",
		userSpace: "vfio-pci"} {
		link := filepath.Join(pci(address), "driver")
		// a process that is the plugin under test has created it
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink("../../../drivers/"+driver, link); err != nil {
			panic(err)
		}
	}
}

var suite = plugintest.Suite{
	Plugin: hostdevice.WithSysfs(sysfs),
	// The other examples differ in how they select the device; TestSelection covers them.
	Examples: hostdevice.WithSysfs(sysfs).Examples()[:3],
	Rewrite: func(conf map[string]any, dir string) {
		conf["dataDir"] = filepath.Join(dir, "devices")
	},
	Before: func(t testing.TB, n *plugintest.Net, c *plugintest.Namespace) *cni.Result {
		device(t, n, c)
		return nil
	},
	Distinguish: func(q *plugintest.Request, n int) { q.Conf["device"] = deviceName(n) },
}

// device creates a device in the host for one container, up and with addresses. Its peer is in the
// container, so the device ends with the container.
func device(_ testing.TB, n *plugintest.Net, c *plugintest.Namespace) {
	name := deviceName(c.Number)
	n.Host.Batch(
		fmt.Sprintf(
			"link add %s address 02:00:5e:00:00:%02x mtu 1400 type veth peer name wire netns %s",
			name, c.Number+1, c.Path()),
		fmt.Sprintf("address add 198.51.%d.1/24 brd + dev %s", c.Number, name),
		fmt.Sprintf("address add 198.51.%d.2/24 brd + dev %s", c.Number, name),
		fmt.Sprintf("address add fd00:51:%x::1/64 dev %s", c.Number, name),
		"link set "+name+" up")
	c.Batch("link set wire up")
}

func deviceName(number int) string {
	if number == 0 {
		return firstDevice
	}
	return fmt.Sprintf("ens1np%d", number)
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
