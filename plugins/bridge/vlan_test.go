package bridge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

var vlanFiltering = testnet.Kernel(kernel.FeatureVLANFiltering)

// vlanRuntime is runtime on a kernel with VLAN filtering.
func vlanRuntime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	testnet.Require(t, vlanFiltering)
	return runtime(t, members)
}

// vlans returns the VLANs of a port as bridge(8) prints them.
func vlans(ns *plugintest.Namespace, port string) string {
	out := ns.Command("bridge", "-compressvlans", "vlan", "show", "dev", port)
	_, out, _ = strings.Cut(out, port) // the line before is a heading
	var list []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			list = append(list, strings.Join(fields, " "))
		}
	}
	return strings.ToLower(strings.ReplaceAll(strings.Join(list, ", "), "Egress ", ""))
}

func filtering(t *testing.T, ns *plugintest.Namespace, br string) bool {
	t.Helper()
	return strings.Contains(ns.Command("ip", "-d", "link", "show", "dev", br), "vlan_filtering 1")
}

// TestVLANs: VLANs of the port, and a bridge that filters only if VLANs are configured. An access
// port is not in the default VLAN.
func TestVLANs(t *testing.T) {
	t.Parallel()
	const trunk = `,"vlanTrunk":[{"minID":200,"maxID":210},{"id":101}]`
	for _, row := range []struct{ name, members, want, preserved string }{
		{"access", `,"vlan":100`, "100 pvid untagged", "1 untagged, 100 pvid untagged"},
		{"trunk", trunk, "1 pvid untagged, 101, 200-210", "1 pvid untagged, 101, 200-210"},
		{"trunk with a native VLAN", `,"vlan":100` + trunk, "100 pvid untagged, 101, 200-210",
			"1 untagged, 100 pvid untagged, 101, 200-210"},
		{"trunk that names its native VLAN", `,"vlan":205` + trunk,
			"101, 200-204, 205 pvid untagged, 206-210",
			"1 untagged, 101, 200-204, 205 pvid untagged, 206-210"},
		{"trunk that names the default VLAN", `,"vlanTrunk":[{"id":1},{"id":2}]`,
			"1 pvid untagged, 2", "1 pvid untagged, 2"},
		{"trunk of one VLAN", `,"vlanTrunk":[{"id":42}]`, "1 pvid untagged, 42",
			"1 pvid untagged, 42"},
		{"trunk of one range", `,"vlanTrunk":[{"minID":4093,"maxID":4094}]`,
			"1 pvid untagged, 4093-4094", "1 pvid untagged, 4093-4094"},
		{"trunk of the default VLAN alone", `,"vlanTrunk":[{"id":1}]`, "1 pvid untagged",
			"1 pvid untagged"},
		{"range and VLAN in one element, more than once",
			`,"vlanTrunk":[{"id":7,"minID":5,"maxID":6},{"minID":5,"maxID":5},{"id":7}]`,
			"1 pvid untagged, 5-7", "1 pvid untagged, 5-7"},
		{"all", `,"vlan":4094,"vlanTrunk":[{"minID":1,"maxID":4094}]`, "1-4093, 4094 pvid untagged",
			"1-4093, 4094 pvid untagged"},
		{"empty trunk", `,"vlanTrunk":[]`, "1 pvid untagged", "1 pvid untagged"},
		{"none", "", "1 pvid untagged", "1 pvid untagged"},
	} {
		for preserve, want := range map[bool]string{false: row.want, true: row.preserved} {
			t.Run(fmt.Sprintf("%s, preserve %t", row.name, preserve), func(t *testing.T) {
				t.Parallel()
				r := vlanRuntime(t,
					fmt.Sprintf(`%s,"preserveDefaultVlan":%t`, row.members, preserve))
				port := r.Add("c").Interfaces[1].Name
				r.Check("c")
				if got := vlans(r.Host, port); got != want {
					t.Errorf("port is in VLANs %s, want %s", got, want)
				}
				if got, want := filtering(t, r.Host, "br0"), row.members != ""; got != want {
					t.Errorf("bridge filters: %t, want %t", got, want)
				}
				r.Del("c")
			})
		}
	}
}

// TestKernelWithoutVLANFiltering: such a kernel refuses the keys. The test also runs on a kernel
// with filtering, which refuses none.
func TestKernelWithoutVLANFiltering(t *testing.T) {
	t.Parallel()
	has := vlanFiltering() == nil
	for _, row := range []struct {
		name, members string
		key           string // refused key; empty: none
	}{
		{"no VLAN", `,"vlan":0,"preserveDefaultVlan":true`, ""},
		{"access", `,"vlan":100`, "vlan: 100"},
		{"trunk", `,"vlanTrunk":[{"id":101}]`, `vlanTrunk: [{"id":101}]`},
		{"empty trunk", `,"vlanTrunk":[]`, "vlanTrunk: []"},
	} {
		for _, exists := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, bridge exists %t", row.name, exists), func(t *testing.T) {
				t.Parallel()
				r := runtime(t, row.members)
				if exists {
					r.Host.Command("ip", "link", "add", "br0", "type", "bridge")
				}
				r.Container("c")
				before := r.State()
				if has || row.key == "" {
					r.Add("c")
					r.Must(r.Request(cni.Status, "c"))
					return
				}
				err := r.Refused(r.Request(cni.Add, "c"), cni.CodeUnsupportedField)
				plugintest.Says(t, err, row.key)
				plugintest.Says(t, err, "CONFIG_BRIDGE_VLAN_FILTERING")
				plugintest.Says(t, r.Refused(r.Request(cni.Status, "c"), cni.CodeNotAvailable),
					"CONFIG_BRIDGE_VLAN_FILTERING")
				r.Must(r.Request(cni.Del, "c"))
				r.Unchanged(before)
			})
		}
	}
}

// TestBridgeThatDoesNotFilter: ADD uses an existing bridge without filtering unchanged, and CHECK
// fails.
func TestBridgeThatDoesNotFilter(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, `,"vlan":100`)
	r.Host.Command("ip", "link", "add", "br0", "type", "bridge")
	port := r.Add("c").Interfaces[1].Name
	if filtering(t, r.Host, "br0") {
		t.Error("the existing bridge was changed")
	}
	if got, want := vlans(r.Host, port), "100 pvid untagged"; got != want {
		t.Errorf("port is in VLANs %s, want %s", got, want)
	}
	plugintest.Says(t, r.Refused(r.Request(cni.Check, "c"), cni.CodeInternal),
		"bridge br0: VLAN filtering is off")
	r.Host.Command("ip", "link", "set", "br0", "type", "bridge", "vlan_filtering", "1")
	r.Check("c")
}

// TestVLANIsolation: the containers that receive each other's frames on one bridge, with the
// default VLAN.
func TestVLANIsolation(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, "")
	containers := []struct {
		name, members string
		vlan          int // of untagged frames
	}{
		{"a", `{"vlan":100}`, 100},
		{"b", `{"vlan":100}`, 100},
		{"c", `{"vlan":200}`, 200},
		{"trunk", `{"vlanTrunk":[{"id":100},{"id":200}]}`, 1},
		{"native", `{"vlan":200,"vlanTrunk":[{"id":100}]}`, 200},
		{"none", `{}`, 1},
	}
	ip := func(vlan, n int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(vlan), 0, byte(n + 1)})
	}
	for i, c := range containers {
		q := r.Request(cni.Add, c.name)
		if err := json.Unmarshal([]byte(c.members), &q.Conf); err != nil {
			t.Fatal(err)
		}
		r.Must(q)
		ns := r.Container(c.name)
		ns.Command("ip", "address", "add", ip(0, i).String()+"/24", "dev", "eth0")
		for _, vlan := range []int{100, 200} { // any container can send tagged frames
			name := fmt.Sprintf("eth0.%d", vlan)
			ns.Command("ip", "link", "add", name, "link", "eth0", "up", "type", "vlan", "id",
				fmt.Sprint(vlan))
			ns.Command("ip", "address", "add", ip(vlan, i).String()+"/24", "dev", name)
		}
	}
	tagged := map[string][]int{"trunk": {100, 200}, "native": {100}}
	for i, from := range containers {
		for j, to := range containers {
			if i == j {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				testnet.Reaches(t, r.Container(from.name), ip(0, j), from.vlan == to.vlan)
				for _, vlan := range []int{100, 200} {
					both := slices.Contains(tagged[from.name], vlan) &&
						slices.Contains(tagged[to.name], vlan)
					testnet.Reaches(t, r.Container(from.name), ip(vlan, j), both)
				}
			})
		}
	}
}

// TestVLANOfTheTrunkIsUntaggedForOthers: a trunk and an access port of one VLAN reach each other.
func TestVLANOfTheTrunkIsUntaggedForOthers(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, `,"vlan":100`)
	r.Add("access")
	r.Conf["vlan"], r.Conf["vlanTrunk"] = 0, []any{map[string]any{"id": 100}}
	r.Add("trunk")
	r.Container("access").Command("ip", "address", "add", "10.5.0.1/24", "dev", "eth0")
	r.Container("trunk").Command("ip", "link", "add", "eth0.100", "link", "eth0", "up", "type",
		"vlan", "id", "100")
	r.Container("trunk").Command("ip", "address", "add", "10.5.0.2/24", "dev", "eth0.100")
	testnet.Reaches(t, r.Container("access"), netip.MustParseAddr("10.5.0.2"), true)
}

const vlanGateway = gateway + `,"vlan":100` + ipamDual

// TestVLANGateway: the interfaces of a VLAN with a gateway, which stay after DEL.
func TestVLANGateway(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, vlanGateway+`,"mtu":1400`)
	a := r.Add("a")
	gw, index := show(t, r.Host, "br0.100"), show(t, r.Host, "br0.100").IfIndex
	if len(a.Interfaces) != 4 || a.Interfaces[3] != (cni.Interface{
		Name: "br0.100", MAC: gw.Address,
	}) {
		t.Errorf("interfaces are %+v, want %s %s as the fourth", a.Interfaces,
			gw.IfName, gw.Address)
	}
	links := strings.Count(r.Host.Command("ip", "-o", "link"), "\n")
	if pairs := strings.Count(r.Host.Command("ip", "-o", "link", "show", "type", "veth"),
		"\n"); links != 5 || pairs != 3 {
		t.Errorf("host has %d links, %d of them veths; want 5, 3: loopback, bridge, gateway and its port, the container's port",
			links, pairs)
	}
	if diff := cmp.Diff([]string{"10.1.2.1/24", "fd00:1::1/64"},
		addresses(r.Host, "br0.100")); diff != "" {
		t.Errorf("gateway interface: %s", diff)
	}
	if have := addresses(r.Host, "br0"); have != nil {
		t.Errorf("the bridge has addresses: %v", have)
	}
	port := otherEnd(r.Host, "br0.100")
	if got, want := vlans(r.Host, port), "100 pvid untagged"; got != want {
		t.Errorf("port of the gateway is in VLANs %s, want %s", got, want)
	}
	if mtu := show(t, r.Host, port).MTU; gw.MTU != 1400 || mtu != 1400 || !gw.up() {
		t.Errorf("gateway has MTU %d, its port %d; up: %t", gw.MTU, mtu, gw.up())
	}
	for _, name := range []string{"br0.100", port} {
		if got := setting(t, r.Host, "net/ipv6/conf/"+name+"/accept_ra"); got != "0" {
			t.Errorf("%s accepts router advertisements: %s", name, got)
		}
	}

	b := r.Add("b")
	for i, ip := range b.IPs {
		testnet.Reaches(t, r.Container("b"), ip.Gateway, true)
		testnet.Reaches(t, r.Container("b"), a.IPs[i].Address.Addr(), true)
		testnet.Reaches(t, r.Host, ip.Address.Addr(), true)
	}
	r.Check("a")
	r.Del("a")
	r.Must(r.Collect("b"))
	r.Check("b")
	r.Del("b")
	r.Must(r.Collect())
	if now := show(t, r.Host, "br0.100"); now.IfIndex != index || vlans(r.Host, port) == "" {
		t.Errorf("gateway interface was %+v, is %+v", gw, now)
	}
}

// otherEnd returns the name of the peer of a veth on the host.
func otherEnd(ns *plugintest.Namespace, name string) string {
	_, line, _ := strings.Cut(ns.Command("ip", "-br", "link", "show", "dev", name), "@")
	return strings.Fields(line)[0]
}

// TestVLANGatewaysAreApart: each VLAN of a bridge has its own gateway, which containers of other
// VLANs cannot reach through theirs.
func TestVLANGatewaysAreApart(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t,
		`,"isGateway":true,"vlan":100,"ipam":{"type":"host-local","subnet":"10.1.0.0/24"}`)
	r.Add("a")
	r.Conf["vlan"], r.Conf["name"], r.Conf["ipam"].(map[string]any)["subnet"] = 200, "other", "10.2.0.0/24"
	r.Add("b")
	r.Check("b")
	for _, name := range []string{"br0.100", "br0.200"} {
		show(t, r.Host, name)
	}
	testnet.Reaches(t, r.Container("a"), netip.MustParseAddr("10.1.0.1"), true)
	testnet.Reaches(t, r.Container("b"), netip.MustParseAddr("10.2.0.1"), true)
	r.Container("b").Command("ip", "address", "add", "10.1.0.9/24", "dev", "eth0")
	testnet.Reaches(t, r.Container("b"), netip.MustParseAddr("10.1.0.1"), false)
}

// TestVLANGatewayIsSomethingElse: ADD uses a link with the gateway's name, of any kind.
func TestVLANGatewayIsSomethingElse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, commands string }{
		{"interface on the bridge itself", `link add br0 address 02:00:00:00:00:01 type bridge vlan_filtering 1
			link add br0.100 link br0 type vlan id 100`},
		{"veth pair to another bridge", `link add br1 type bridge
			link add br0.100 type veth peer name other
			link set other master br1`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := vlanRuntime(t, vlanGateway)
			for line := range strings.Lines(row.commands) {
				r.Host.Command("ip", strings.Fields(line)...)
			}
			before := show(t, r.Host, "br0.100")
			if got := len(r.Add("c").Interfaces); got != 4 {
				t.Errorf("%d interfaces, want 4", got)
			}
			r.Check("c")
			after := show(t, r.Host, "br0.100")
			if after.IfIndex != before.IfIndex || after.Address != before.Address || !after.up() {
				t.Errorf("was %+v, is %+v", before, after)
			}
			if diff := cmp.Diff([]string{"10.1.2.1/24", "fd00:1::1/64"},
				addresses(r.Host, "br0.100")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVLANGatewayIsCompleted: after a fault in any change of the first ADD, the next ADD completes
// the gateway.
func TestVLANGatewayIsCompleted(t *testing.T) {
	t.Parallel()
	testnet.Require(t, vlanFiltering)
	for n, failed := 0, true; failed; n++ {
		r := vlanRuntime(t, vlanGateway)
		changes := 0
		_, err := r.Watched(func(op string) error {
			if changes++; changes-1 == n {
				return errors.New("fault in " + op)
			}
			return nil
		}).Do(t.Context(), r.Request(cni.Add, "c"))
		if failed = changes > n; !failed {
			break
		}
		result := r.Add("c")
		if _, checked := r.Do(t.Context(), r.Request(cni.Check, "c")); checked != nil {
			t.Errorf("after %v: %v", err, checked)
		}
		testnet.Reaches(t, r.Container("c"), result.IPs[0].Gateway, true)
	}
}
