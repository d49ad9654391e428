package hostdevice_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestSelection tests every way to name the device, and the order of precedence (CONV-17).
func TestSelection(t *testing.T) {
	t.Parallel()
	id := func(s string) string { return fmt.Sprintf(`,"runtimeConfig":{"deviceID":%q}`, s) }
	for _, row := range []struct{ name, conf string }{
		{"name", `,"device":"ens1"`},
		{"alternative name", `,"device":"a-name-longer-than-15-bytes"`},
		{"MAC address", `,"hwaddr":"02:00:5E:00:00:01"`},
		{"path", `,"kernelpath":"/sys/` + pciPath + `"`},
		{"PCI address", `,"pciBusID":"` + pciDevice + `"`},
		{"virtio device", `,"pciBusID":"` + virtio + `"`},
		{"PCI address of the runtime", id(pciDevice)},
		{"PCI address of the runtime takes precedence over the configuration",
			`,"pciBusID":"absent"` + id(pciDevice)},
		{"auxiliary device of the runtime", id(auxiliary)},
		{"auxiliary device takes precedence over a PCI address",
			`,"pciBusID":"absent"` + id(auxiliary)},
		{"name takes precedence over the runtime's device", `,"device":"ens1"` + id(pciDevice) +
			`,"hwaddr":"02:00:00:00:00:99"`},
		{"MAC address takes precedence over a path",
			`,"hwaddr":"02:00:5e:00:00:01","kernelpath":"/sys/devices/absent"`},
		{"path takes precedence over a PCI address", `,"kernelpath":"/sys/` + pciPath +
			`","pciBusID":"` + virtio + `"`},
		{"driver takes precedence over DPDKMode", `,"pciBusID":"` + pciDevice +
			`","DPDKMode":true`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, row.conf)
			r.Host.Command("ip", "link", "property", "add", "dev", "ens1", "altname",
				"a-name-longer-than-15-bytes")
			r.Host.Batch("link add aaa address 02:00:5e:00:00:02 type veth peer name bbb")
			if got := r.Add("c").Interfaces[0].MAC; got != "02:00:5e:00:00:01" {
				t.Errorf("the container has %s", got)
			}
			r.Check("c")
			del(t, r, nil)
			if link(t, r.Host, "ens1") == nil {
				t.Error("the device is not back in the host")
			}
		})
	}
}

// TestSelectionByMAC: if several links have the address, the plugin selects the lowest index.
func TestSelectionByMAC(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"hwaddr":"02:00:5e:00:00:01"`)
	r.Host.Batch("link add aaa index 1001 address 02:00:5e:00:00:01 type veth peer name bbb",
		"link add zzz index 1000 address 02:00:5e:00:00:01 type veth peer name yyy")
	for _, name := range []string{"ens1", "zzz", "aaa"} {
		r.Add("c")
		if inside := link(t, r.Container("c"), "eth0"); inside["ifalias"] != name {
			t.Errorf("the container has %v, want %s", inside["ifalias"], name)
		}
		if left := link(t, r.Host, name); left != nil {
			t.Errorf("the host has %v", left)
		}
		r.Check("c")
		r.Del("c")
		r.Host.Command("ip", "link", "set", name, "address", "02:00:5e:00:00:99")
	}
	r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig)
}

// TestNoDevice: ADD refuses a configuration that names no device, or one that cannot be used, with
// the reason.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, conf, says string }{
		{"no selector", ``, `specify either "device", "hwaddr", "kernelpath" or "pciBusID"`},
		{"unknown name", `,"device":"ens9"`, `failed to find host device: Link not found`},
		{"unknown address", `,"hwaddr":"02:00:00:00:00:99"`, "failed to find physical interface"},
		{"malformed address", `,"hwaddr":"02:00"`, `failed to parse MAC address "02:00"`},
		{"unknown path", `,"kernelpath":"/sys/devices/absent"`,
			"devices/absent/net: no such file or directory"},
		{"relative path", `,"kernelpath":"sys/` + pciPath + `"`,
			"must be absolute and begin with /sys/devices/"},
		{"path elsewhere", `,"kernelpath":"/sys/class/net/ens1"`,
			"must be absolute and begin with /sys/devices/"},
		{"path that leaves /sys/devices", `,"kernelpath":"/sys/devices/../class"`,
			"must be absolute and begin with /sys/devices/"},
		{"unknown PCI address", `,"pciBusID":"0000:00:99.9"`,
			"bus/pci/devices/0000:00:99.9: no such file or directory"},
		{"PCI device without driver", `,"pciBusID":"` + unboundPCI + `"`, "driver of PCI device " +
			unboundPCI},
		{"PCI address that leaves the directory", `,"pciBusID":"../devices/` + pciDevice + `"`,
			"is not a PCI address"},
		{"PCI address of the parent directory", `,"pciBusID":".."`, "is not a PCI address"},
		{"PCI address that is a pattern", `,"pciBusID":"*"`,
			"bus/pci/devices/*: no such file or directory"},
		{"unknown device of the runtime", `,"runtimeConfig":{"deviceID":"absent"}`,
			"runtime config DeviceID absent not found or unsupported"},
		{"device of the runtime that leaves the directory",
			`,"runtimeConfig":{"deviceID":"../../pci/devices/` + pciDevice + `"}`,
			"not found or unsupported"},
		{"lo", `,"device":"lo"`, "lend lo as eth0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, row.conf)
			before := r.State()
			err := r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %q", err, row.says)
			}
			r.Unchanged(before)
			del(t, r, nil)
		})
	}
}

// TestUserSpace: ADD reports a device with a user-space driver and its addresses but does not move
// it. DEL succeeds, even after the device has vanished.
func TestUserSpace(t *testing.T) {
	t.Parallel()
	const static = `,"ipam":{"type":"static","addresses":[{"address":"10.10.0.1/24","gateway":"10.10.0.254"}]}`
	for _, row := range []struct{ name, conf string }{
		{"by its driver", `,"pciBusID":"` + userSpace + `"`},
		{"by the runtime", `,"runtimeConfig":{"deviceID":"` + userSpace + `"}`},
		{"without a PCI address, by the configuration", `,"device":"ens1","dpdkmode":true`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, row.conf+static)
			// ADD ignores an interface of that name
			r.Container("c").Batch("link add eth0 type veth peer name x")
			before := r.State()
			want := &cni.Result{
				Interfaces: []cni.Interface{{Name: "eth0", Sandbox: r.Container("c").Path()}},
			}
			got := r.Add("c")
			if diff := cmp.Diff(want.Interfaces, got.Interfaces); diff != "" || len(got.IPs) != 1 ||
				got.IPs[0].Address.String() != "10.10.0.1/24" {
				t.Errorf("%s %v", diff, got.IPs)
			}
			r.Check("c")
			del(t, r, nil)
			del(t, r, func(q *plugintest.Request) { q.Conf["pciBusID"] = "absent" })
			r.Unchanged(before)
		})
	}
}

// TestStatusWithoutDevice: STATUS succeeds without a device, because the runtime names the device
// only on ADD.
func TestStatusWithoutDevice(t *testing.T) {
	t.Parallel()
	r := lab(t, ipam)
	q := plugintest.Request{Env: cni.Env{Command: cni.Status, Path: r.Request(cni.Add, "c").Path},
		Conf: r.Conf}
	q.Conf["cniVersion"] = "1.1.0"
	r.Must(q)
}
