package tap_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/tap"
)

// runtime creates a host with a network; members are added to the plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	return plugintest.NewRuntime(t, tap.Plugin, `{"cniVersion":"1.1.0","name":"net","type":"tap"`+
		members+`}`)
}

// Members of configurations:
const (
	ipam4    = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.99.0.0/24"}]]}`
	ipamDual = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.99.0.0/24"}],[{"subnet":"fd00:99::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
)

// link is the part of the output of ip for eth0 that the tests compare.
type link struct {
	Address  string
	MTU      int
	IfAlias  string
	Master   string
	Flags    []string
	LinkInfo struct {
		Kind string         `json:"info_kind"`
		Data map[string]any `json:"info_data"`
	}
}

func show(t *testing.T, r *plugintest.Runtime, container string) link {
	t.Helper()
	var links []link
	out := r.Container(container).Command("ip", "-j", "-d", "link", "show", "dev", "eth0")
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	return links[0]
}

func (l link) check(t *testing.T, want map[string]any) {
	t.Helper()
	for key, v := range want {
		got, _ := json.Marshal(l.LinkInfo.Data[key])
		if want, _ := json.Marshal(v); string(got) != string(want) {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestEveryVersion tests owner 0 and group 0 with host-local in all versions.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	for _, version := range tap.Plugin.Versions {
		t.Run(version.String(), func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,"owner":0,"group":0`+ipam4)
			r.Conf["cniVersion"] = version.String()
			result := r.Add("c")
			l := show(t, r, "c")
			if l.LinkInfo.Kind != "tun" {
				t.Errorf("eth0 is a %s", l.LinkInfo.Kind)
			}
			l.check(t, map[string]any{"type": "tap", "user": "root", "group": "root",
				"persist": true, "pi": false, "vnet_hdr": true})
			if version >= cni.V030 && result.Interfaces[0].MAC != l.Address {
				t.Errorf("MAC in the result is %s, in the kernel %s", result.Interfaces[0].MAC,
					l.Address)
			}
			if len(result.IPs) != 1 || !strings.Contains(r.Container("c").
				Command("ip", "address", "show", "dev", "eth0"), result.IPs[0].Address.String()) {
				t.Errorf("the kernel does not have the addresses %v", result.IPs)
			}
			if version.Has(cni.Check) {
				r.Check("c")
			}
			for range 2 {
				r.Must(r.Request(cni.Del, "c"))
			}
			if r.Container("c").Try("ip", "link", "show", "eth0") == nil {
				t.Error("DEL has left the device")
			}
		})
	}
}

// TestBridge: the device becomes a port of a bridge in the container.
func TestBridge(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"bridge":"br1"`)
	r.Container("c").Command("ip", "link", "add", "br1", "type", "bridge")
	r.Add("c")
	if l := show(t, r, "c"); l.Master != "br1" || !slices.Contains(l.Flags, "UP") {
		t.Errorf("the device is not on the bridge, or down: %+v", l)
	}
	r.Check("c")
	for range 2 {
		r.Must(r.Request(cni.Del, "c"))
	}
}

// TestNoBridge: a missing bridge, or a link of another kind, is refused with code 7; ADD leaves
// nothing behind.
func TestNoBridge(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam4)
	r.Container("c").Command("ip", "link", "add", "pair", "type", "veth", "peer", "other")
	r.Host.Command("ip", "link", "add", "elsewhere", "type", "bridge")
	before := r.State()
	for name, says := range map[string]string{"absent": "absent", "pair": "is a veth",
		"elsewhere": "the container has no such link", "../x": "valid"} {
		q := r.Request(cni.Add, "c")
		q.Conf["bridge"] = name
		plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), says)
		q.Command = cni.Del
		r.Must(q)
	}
	r.Unchanged(before)
}

// TestDevice: owner, group and queues are set only if configured, mtu and mac always; arp_notify is
// set only with addresses.
func TestDevice(t *testing.T) {
	t.Parallel()
	const mac = "02:00:00:00:00:42"
	for _, row := range []struct {
		name, members string
		mtu           int
		mac           string
		data          map[string]any
		notify        string
	}{
		{"nothing", "", 1500, "", map[string]any{"user": nil, "group": nil, "vnet_hdr": false,
			"multi_queue": false}, "0"},
		{"owner", `,"owner":5001`, 1500, "",
			map[string]any{"user": 5001, "group": nil, "vnet_hdr": false}, "0"},
		{"group", `,"group":5002,"multiQueue":true`, 1500, "", map[string]any{"user": nil,
			"group": 5002, "vnet_hdr": false, "multi_queue": true}, "0"},
		{"group without members", `,"owner":null,"group":4294967294`, 1500, "",
			map[string]any{"user": nil, "group": uint32(4294967294)}, "0"},
		{"both, mtu and mac", `,"owner":5001,"group":5002,"mtu":1400,"mac":"` + mac + `"` + ipam4,
			1400, mac, map[string]any{"user": 5001, "group": 5002, "vnet_hdr": true}, "1"},
		{"mtu and mac", `,"mtu":9000,"mac":"` + mac + `"`, 9000, mac, map[string]any{"user": nil},
			"0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			result := r.Add("c")
			l := show(t, r, "c")
			l.check(t, row.data)
			l.check(t, map[string]any{"type": "tap", "pi": false, "persist": true})
			if l.MTU != row.mtu || row.mac != "" && l.Address != row.mac ||
				result.Interfaces[0].MAC != l.Address {
				t.Errorf("mtu %d, mac %s, result %v", l.MTU, l.Address, result.Interfaces)
			}
			if want := (cni.Attachment{Network: "net", Container: "c", IfName: "eth0"}).
				Tag(); l.IfAlias != want {
				t.Errorf("alias %q, want %q", l.IfAlias, want)
			}
			settings := r.Container("c").Command("sysctl", "-n", "net.ipv4.conf.eth0.arp_notify",
				"net.ipv6.conf.eth0.ndisc_notify")
			if want := row.notify + "\n0\n"; settings != want {
				t.Errorf("announcements: %q, want %q", settings, want)
			}
			r.Check("c")
		})
	}
}

// TestMAC: runtimeConfig takes precedence over CNI_ARGS, and CNI_ARGS over the configuration.
func TestMAC(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mac":"02:00:00:00:00:01","args":{"cni":{"mac":"02:00:00:00:00:04"}}`)
	q := r.Request(cni.Add, "c")
	for _, row := range []struct {
		change func()
		want   string
	}{
		{func() {}, "02:00:00:00:00:01"},
		{func() { q.Args = "MAC=02-00-00-00-00-02" }, "02:00:00:00:00:02"},
		{func() {
			q.Conf["runtimeConfig"] = map[string]any{"mac": "02:00:00:00:00:03"}
		}, "02:00:00:00:00:03"},
	} {
		row.change()
		q.Command = cni.Add
		r.Must(q)
		if got := show(t, r, "c").Address; got != row.want {
			t.Errorf("MAC %s, want %s", got, row.want)
		}
		q.Command = cni.Del
		r.Must(q)
	}
	q.Command, q.Args = cni.Add, "UNKNOWN=1"
	r.Refused(q, cni.CodeInvalidConfig, cni.CodeInvalidEnvironment)
	q.Command = cni.Del // DEL ignores unknown arguments
	r.Must(q)
}

// TestNothingToWaitFor: without a carrier the kernel cannot look for duplicates, yet the addresses
// are usable. The dns of IPAM is not in the result.
func TestNothingToWaitFor(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipamDual+`,"dns":{"nameservers":["10.0.0.53"]}`)
	result := r.Add("c")
	out := r.Container("c").Command("ip", "address", "show", "dev", "eth0")
	if !strings.Contains(out, "NO-CARRIER") || !strings.Contains(out, "fd00:99::2/64") ||
		strings.Contains(out, "tentative") {
		t.Errorf("the address is not usable, or the device has a carrier: %s", out)
	}
	if len(result.Routes) != 2 || !slices.Equal(result.DNS.Nameservers, []string{"10.0.0.53"}) {
		t.Errorf("result %+v", result)
	}
	r.Check("c")
}

// TestNameTaken: ADD refuses a name that exists. Upstream reports the existing interface and leaks
// its own device.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"tuntap add mode tap name eth0", "tuntap add mode tap multi_queue name eth0",
		"tuntap add mode tun name eth0",
		"link add eth0 type bridge", "link add other type veth peer eth0",
	} {
		r := runtime(t, `,"multiQueue":true`+ipam4)
		r.Container("c").Batch(command)
		before := r.State()
		q := r.Request(cni.Add, "c")
		_, err := r.Do(t.Context(), q)
		plugintest.Says(t, err, `link "eth0" exists`)
		r.Unchanged(before)
	}
}

// TestReplaced: CHECK reports a device that differs from the configuration, even with the same MAC
// address; DEL removes it.
func TestReplaced(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"multiQueue":true,"owner":5001,"group":5002`)
	for mode, says := range map[string]string{
		"user 5001 group 5002":             "several queues",
		"multi_queue user 5001":            "group 5002, found none",
		"multi_queue group 5002":           "owner 5001, found none",
		"multi_queue user 6 group 5002":    "owner 5001, found 6",
		"multi_queue user 5001 group 6":    "group 5002, found 6",
		"multi_queue user 5001 group 5002": "",
	} {
		r.Add("c")
		mac := show(t, r, "c").Address
		r.Container("c").Batch("link delete eth0", "tuntap add mode tap name eth0 "+mode,
			"link set eth0 up address "+mac)
		if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); says != "" || err != nil {
			plugintest.Says(t, err, says)
		}
		r.Del("c")
		if r.Container("c").Try("ip", "link", "show", "eth0") == nil {
			t.Errorf("%s: DEL left the device", mode)
		}
	}
}

// TestDelKeepsWhatIsNotOurs: DEL keeps a link of another kind and a tap device of another
// container.
func TestDelKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	other := cni.Attachment{Network: "net", Container: "other", IfName: "eth0"}.Tag()
	for _, commands := range [][]string{
		{"link add eth0 type bridge"},
		{"tuntap add mode tap name eth0", "link set eth0 alias \"" + other + "\""},
	} {
		r := runtime(t, "")
		r.Container("c").Batch(commands...)
		before := r.State()
		r.Must(r.Request(cni.Del, "c"))
		r.Unchanged(before)
	}
}

// TestDelWithoutNamespace: DEL with an empty CNI_NETNS, or one that no longer exists, succeeds and
// releases the address.
func TestDelWithoutNamespace(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam4)
	r.Add("first") // creates the files that attachments share
	r.Del("first")
	before := r.State()
	for _, gone := range []string{"", "/absent"} {
		r.Add("c")
		q := r.Request(cni.Del, "c")
		q.Netns = gone
		r.Remove("c")
		r.Must(q)
		r.Must(q)
		r.Unchanged(before)
	}
}

// TestConfiguration tests configurations that ADD refuses before its first change.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	for _, row := range []struct {
		members, says string
		code          cni.Code
	}{
		{`"mtu":65536`, "65536", cni.CodeInvalidConfig},
		{`"mac":"02:00"`, "02:00", cni.CodeInvalidConfig},
		{`"runtimeConfig":{"mac":"nonsense"}`, "nonsense", cni.CodeInvalidConfig},
		{`"owner":4294967295`, "owner", cni.CodeInvalidConfig},
		{`"group":4294967295`, "group", cni.CodeInvalidConfig},
		{`"group":4294967296`, "group", cni.CodeDecodingFailure},
		{`"owner":-1`, "owner", cni.CodeDecodingFailure},
		{`"cniVersion":"0.2.0"`, "0.3.0", cni.CodeInvalidConfig},
	} {
		q := r.Request(cni.Add, "c")
		if err := json.Unmarshal([]byte("{"+row.members+"}"), &q.Conf); err != nil {
			t.Fatal(err)
		}
		plugintest.Says(t, r.Refused(q, row.code), row.says)
	}
	r.Unchanged(before)
}

// TestFaults: if a step fails after the device was created, ADD deletes the device and releases the
// address.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"bridge":"br0","mtu":1400,"mac":"02:00:00:00:00:01"`+ipamDual)
	r.Container("c").
		Command("ip", "link", "add", "br0", "address", "02:00:00:00:0b:0b", "type", "bridge")
	r.Add("c") // creates the files that attachments share
	r.Del("c")
	before := r.State()
	for _, step := range []string{"alias ", "mtu ", "mac ", "master ", "ipam ", "up "} {
		failed := ""
		watched := r.Watched(func(op string) error {
			if failed == "" && strings.HasPrefix(op, step) {
				failed = op
				return errors.New("injected fault")
			}
			return nil
		})
		_, err := watched.Do(t.Context(), r.Request(cni.Add, "c"))
		if plugintest.Says(t, err, "injected fault"); failed == "" {
			t.Errorf("there is no step %q", step)
		}
		r.Unchanged(before)
	}
}

// TestNoDevice: without /dev/net/tun ADD fails with code 2, STATUS with code 50, and DEL succeeds.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("unshare"))
	r := runtime(t, ipam4)
	r.Container("c")
	before := r.State()
	for verb, want := range map[cni.Command]cni.Code{cni.Add: cni.CodeUnsupportedField,
		cni.Status: cni.CodeNotAvailable, cni.Del: 0} {
		err := execute(t, r, r.Request(verb, "c"), "unshare", "-m", "sh", "-c",
			`mount -t tmpfs none /dev/net && exec "$0"`)
		if code(t, err, want); want != 0 {
			plugintest.Says(t, err, "load module tun")
		}
	}
	r.Unchanged(before)
}

// execute runs the plugin as a process with these arguments and returns the error that it prints.
func execute(t *testing.T, r *plugintest.Runtime, q plugintest.Request, words ...string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tap")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(q.Conf)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r.Host.Do(func() {
		cmd := exec.Command(words[0], append(words[1:], path)...)
		cmd.Env = append(os.Environ(), q.Environ()...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
		err = cmd.Run()
	})
	if err == nil {
		return nil
	}
	failure, decodeErr := cni.DecodeErrorStrict(out.Bytes())
	if decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out.Bytes())
	}
	return failure
}
