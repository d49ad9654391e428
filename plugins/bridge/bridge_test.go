package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bridge"
)

// runtime creates a host with a network; members are JSON members of the plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	return plugintest.NewRuntime(t, bridge.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"bridge","bridge":"br0"`+members+`}`)
}

// Members of configurations.
const (
	ipam4    = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}]]}`
	ipam6    = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"fd00:1::/64"}]]}`
	ipamDual = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}]]}`
	gateway  = `,"isDefaultGateway":true`
)

// link holds the output of ip for an interface.
type link struct {
	IfName   string
	IfIndex  int
	Address  string
	MTU      int
	TxQLen   int
	Promisc  int `json:"promiscuity"`
	Flags    []string
	LinkInfo struct {
		SlaveData struct{ Hairpin, Isolated bool } `json:"info_slave_data"`
	}
}

func (l link) up() bool { return slices.Contains(l.Flags, "UP") }

func show(t *testing.T, ns *plugintest.Namespace, name string) link {
	t.Helper()
	var links []link
	out := ns.Command("ip", "-j", "-d", "link", "show", "dev", name)
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	return links[0]
}

// addresses lists the addresses of an interface as ADDRESS/LENGTH, without link-local ones.
func addresses(ns *plugintest.Namespace, name string) []string {
	var all []string
	for line := range strings.Lines(ns.Command("ip", "-o", "address", "show", "dev", name, "scope",
		"global")) {
		all = append(all, strings.Fields(line)[3])
	}
	slices.Sort(all)
	return all
}

// TestConfiguration: these configurations are refused before any change. Code 2 names key and value
// (ERR-04), and a malformed capability is refused (CONV-07).
func TestConfiguration(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	for _, row := range []struct {
		name, members string
		code          cni.Code
		says          string
	}{
		{"hairpin and promiscuous mode", `"hairpinMode":true,"promiscMode":true`,
			cni.CodeInvalidConfig, "hairpinMode or promiscMode"},
		{"IPAM with an interface that stays down",
			`"disableContainerInterface":true,"ipam":{"type":"host-local"}`, cni.CodeInvalidConfig,
			"disableContainerInterface"},
		{"name of the bridge is too long", `"bridge":"a-name-of-16-byte"`, cni.CodeInvalidConfig,
			"a-name-of-16-byte"},
		{"name of the bridge is a path", `"bridge":"../br0"`, cni.CodeInvalidConfig, "../br0"},
		{"negative MTU", `"mtu":-1`, cni.CodeInvalidConfig, "mtu"},
		{"impossible MTU", `"mtu":65536`, cni.CodeInvalidConfig, "65536"},
		{"VLAN above the range", `"vlan":4095`, cni.CodeInvalidConfig,
			"invalid VLAN ID 4095 (must be between 0 and 4094)"},
		{"VLAN below the range", `"vlan":-1`, cni.CodeInvalidConfig,
			"invalid VLAN ID -1 (must be between 0 and 4094)"},
		{"name of the VLAN's gateway interface is too long",
			`"bridge":"eleven-byte","vlan":1000,"isGateway":true`, cni.CodeInvalidConfig,
			"eleven-byte.1000"},
		{"VLAN of a trunk below the range", `"vlanTrunk":[{"id":101},{"id":0}]`,
			cni.CodeInvalidConfig, "incorrect trunk id parameter"},
		{"VLAN of a trunk above the range", `"vlanTrunk":[{"id":4095}]`, cni.CodeInvalidConfig,
			"incorrect trunk id parameter"},
		{"range of a trunk begins below the range", `"vlanTrunk":[{"minID":0,"maxID":10}]`,
			cni.CodeInvalidConfig, "incorrect trunk minID parameter"},
		{"range of a trunk ends above the range", `"vlanTrunk":[{"minID":1,"maxID":4095}]`,
			cni.CodeInvalidConfig, "incorrect trunk maxID parameter"},
		{"range of a trunk ends before it begins", `"vlanTrunk":[{"minID":20,"maxID":10}]`,
			cni.CodeInvalidConfig, "minID is greater than maxID in trunk parameter"},
		{"range of a trunk without end", `"vlanTrunk":[{"minID":20}]`, cni.CodeInvalidConfig,
			"minID and maxID should be configured simultaneously, maxID is missing"},
		{"range of a trunk without beginning", `"vlanTrunk":[{"maxID":20,"id":5}]`,
			cni.CodeInvalidConfig,
			"minID and maxID should be configured simultaneously, minID is missing"},
		{"unknown backend", `"ipMasqBackend":"ebtables"`, cni.CodeInvalidConfig, "ebtables"},
		{"unknown value of secondDefaultRoute", `"secondDefaultRoute":"replace"`,
			cni.CodeInvalidConfig, "replace"},
		{"MAC", `"runtimeConfig":{"mac":"02:00"}`, cni.CodeInvalidConfig, "02:00"},
		{"no IPAM in 0.2.0", `"cniVersion":"0.2.0"`, cni.CodeInvalidConfig, "0.3.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, verb := range []cni.Command{cni.Add, cni.Status} {
				q := r.Request(verb, "c")
				if err := json.Unmarshal([]byte("{"+row.members+"}"), &q.Conf); err != nil {
					t.Fatal(err)
				}
				if q.Conf["cniVersion"] != "1.1.0" && verb == cni.Status {
					continue
				}
				_, err := r.Do(t.Context(), q)
				if code := cni.CodeOf(err); code != row.code {
					t.Errorf("%s: code %d, want %d: %v", verb, code, row.code, err)
				}
				plugintest.Says(t, err, row.says)
				q.Command = cni.Del // DEL succeeds with the configuration that ADD refuses
				if _, err := r.Do(t.Context(), q); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
	r.Unchanged(before)
}

// TestMakesTheBridge: ADD creates the bridge, and reports it and the veth pair.
func TestMakesTheBridge(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	result := r.Add("c")
	br, port, inside := show(t, r.Host, "br0"), show(t, r.Host, result.Interfaces[1].Name), show(t,
		r.Container("c"), "eth0")
	for _, l := range []link{br, port, inside} {
		if l.MTU != 1400 || !l.up() || l.TxQLen != 1000 { // the kernel's default queue length
			t.Errorf("%s has MTU %d, queue %d, flags %v", l.IfName, l.MTU, l.TxQLen, l.Flags)
		}
	}
	for i, want := range []link{br, port, inside} {
		if got := result.Interfaces[i]; got.Name != want.IfName || got.MAC != want.Address {
			t.Errorf("interface %d is %+v, found %s %s", i, got, want.IfName, want.Address)
		}
	}
	if br.Address == port.Address {
		t.Error("the bridge has the MAC address of its port")
	}
}

// TestAlternativeName: CHECK accepts a bridge that the configuration names by an alternative name.
func TestAlternativeName(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ipam":{"type":"host-local","subnet":"10.88.0.0/24"}`)
	r.Host.Batch("link add brx type bridge", "link property add dev brx altname lanbridge")
	r.Conf["bridge"] = "lanbridge"
	if got := r.Add("c").Interfaces[0].Name; got != "brx" {
		t.Errorf("the bridge is %s in the result", got)
	}
	r.Check("c")
	r.Del("c")
}

// TestSharedMTU: a container with a small MTU leaves the MTU and the IPv6 gateway of a bridge that
// it shares. A bridge without other ports gets the MTU of the container.
func TestSharedMTU(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		others    bool
		mtu, want int
	}{
		{"another port needs the MTU", true, 1400, 1500},
		{"another port needs the MTU, too small for IPv6", true, 1000, 1500},
		{"no other port", false, 1400, 1400},
		{"no other port, too small for IPv6", false, 1000, 1500},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}`)
			r.Host.Batch("link add br0 type bridge", "address add fd00::1/64 dev br0 nodad",
				"link set br0 up")
			if row.others {
				r.Add("other")
			}
			q := r.Request(cni.Add, "c")
			q.Conf["mtu"] = row.mtu
			r.Must(q)
			if got := show(t, r.Host, "br0").MTU; got != row.want {
				t.Errorf("the bridge has MTU %d, want %d", got, row.want)
			}
			if got := show(t, r.Container("c"), "eth0").MTU; got != row.mtu {
				t.Errorf("the container has MTU %d, want %d", got, row.mtu)
			}
			if out := r.Host.Command("ip", "-6", "address", "show", "dev", "br0"); !strings.Contains(
				out, "fd00::1/64") {
				t.Errorf("the gateway is gone: %s", out)
			}
		})
	}
}

// TestMTUWithIPv6: an MTU that is too small for IPv6 is the reason that ADD states.
func TestMTUWithIPv6(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ipam":{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}]]}`)
	r.Conf["mtu"] = 1280
	r.Add("c")
	r.Del("c")
	before := r.State()
	q := r.Request(cni.Add, "c")
	q.Conf["mtu"] = 1279
	plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), "has MTU 1279, but IPv6 address fd00::")
	r.Unchanged(before)
}

func TestUsesTheBridge(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	r.Host.Command("ip", "link", "add", "br0", "type", "bridge")
	r.Host.Command("ip", "link", "set", "br0", "mtu", "1300")
	before := show(t, r.Host, "br0")
	r.Add("c")
	r.Check("c")
	after := show(t, r.Host, "br0")
	if after.IfIndex != before.IfIndex || after.MTU != 1300 || !after.up() {
		t.Errorf("bridge was %+v, is %+v", before, after)
	}
	if inside := show(t, r.Container("c"), "eth0"); inside.MTU != 1400 {
		t.Errorf("MTU of the container is %d", inside.MTU)
	}
}

func TestDefaultBridge(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	delete(r.Conf, "bridge")
	if name := r.Add("c").Interfaces[0].Name; name != "cni0" {
		t.Errorf("bridge is %s, want cni0", name)
	}
}

func TestBridgeIsSomethingElse(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Host.Command("ip", "link", "add", "br0", "type", "veth", "peer", "name", "peer")
	r.Container("c")
	before := r.State()
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig), `"br0"`)
	r.Unchanged(before)
}

// TestVersions: addresses of one family, of both, and more of one family than old versions can
// express. DNS comes from resolvConf.
func TestVersions(t *testing.T) {
	t.Parallel()
	resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte("nameserver 10.9.9.9\nsearch example.com\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, ranges string
		want         []string
		oldest       cni.Version
	}{
		{"IPv4", `[[{"subnet":"10.1.2.0/24"}]]`, []string{"10.1.2.2/24"}, cni.V010},
		{"IPv6", `[[{"subnet":"fd00:1::/64"}]]`, []string{"fd00:1::2/64"}, cni.V010},
		{"both", `[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}]]`, []string{
			"10.1.2.2/24", "fd00:1::2/64",
		}, cni.V010},
		{"three",
			`[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}],[{"subnet":"fd00:2::/64"}]]`,
			[]string{"10.1.2.2/24", "fd00:1::2/64", "fd00:2::2/64"}, cni.V030},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t,
				gateway+`,"ipMasq":true,"ipam":{"type":"host-local","resolvConf":"`+resolvConf+`","ranges":`+row.ranges+`}`)
			for _, v := range cni.Versions() {
				r.Conf["cniVersion"] = v.String()
				if v < row.oldest {
					r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig)
					continue
				}
				result := r.Add("c")
				var got []string
				for _, ip := range result.IPs {
					got = append(got, ip.Address.String())
					if want := ip.Address.Masked().Addr().Next(); ip.Gateway != want {
						t.Errorf("%v: gateway of %s is %s, want %s", v, ip.Address,
							ip.Gateway, want)
					}
				}
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("%v: %s", v, diff)
				}
				if diff := cmp.Diff(row.want, addresses(r.Container("c"), "eth0")); diff != "" {
					t.Errorf("%v: container: %s", v, diff)
				}
				if diff := cmp.Diff(cni.DNS{
					Nameservers: []string{"10.9.9.9"}, Search: []string{"example.com"},
				}, result.DNS); diff != "" {
					t.Errorf("%v: %s", v, diff)
				}
				r.Del("c")
				// so that each version gets the same addresses
				if err := os.RemoveAll(filepath.Join(r.Dir, "net")); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestDefaultRoutes: default routes have no source address.
func TestDefaultRoutes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, members, v4, v6 string }{
		{"no gateway", ipamDual, "", ""},
		{"gateway without a default route", `,"isGateway":true` + ipamDual, "", ""},
		{"default gateway", gateway + ipamDual, "default via 10.1.2.1 dev eth0",
			"default via fd00:1::1 dev eth0 metric 1024 pref medium"},
		{"one default route for two addresses",
			gateway +
				`,"ipam":{"type":"host-local","ranges":[[{"subnet":"fd00:1::/64"}],[{"subnet":"fd00:2::/64"}]]}`,
			"", "default via fd00:1::1 dev eth0 metric 1024 pref medium"},
		{"default route of IPAM without a gateway is identical",
			gateway +
				`,"ipam":{"type":"host-local","subnet":"10.1.2.0/24","routes":[{"dst":"0.0.0.0/0"}]}`,
			"default via 10.1.2.1 dev eth0", ""},
		{"default route of IPAM takes precedence",
			gateway +
				`,"ipam":{"type":"host-local","subnet":"10.1.2.0/24","routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.9"}]}`,
			"default via 10.1.2.9 dev eth0", ""},
		{"gateway of IPAM",
			gateway + `,"ipam":{"type":"host-local","subnet":"10.1.2.0/24","gateway":"10.1.2.200"}`,
			"default via 10.1.2.200 dev eth0", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Add("c")
			r.Check("c")
			for family, want := range map[string]string{"-4": row.v4, "-6": row.v6} {
				if got := strings.TrimSpace(r.Container("c").
					Command("ip", family, "route", "show", "default")); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// TestInterfaceStaysDown: with disableContainerInterface the interface is down and has no address,
// not even a link-local one.
func TestInterfaceStaysDown(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"disableContainerInterface":true`)
	r.Add("c")
	r.Check("c")
	if l := show(t, r.Container("c"), "eth0"); l.up() {
		t.Errorf("interface is up: %v", l.Flags)
	}
	if have := r.Container("c").Command("ip", "-o", "address", "show", "dev", "eth0"); have != "" {
		t.Errorf("interface has %s", have)
	}
}

// TestLinkLocalAddress: a new bridge has its link-local address from the start, as with the
// upstream plugin, also if the interface of its first container stays down. The address follows
// from the MAC address of the bridge.
func TestLinkLocalAddress(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"disableContainerInterface":true`)
	name := r.Add("c").Interfaces[0].Name
	address := func() string {
		return r.Host.Command("ip", "-o", "-6", "address", "show", "dev", name, "scope", "link")
	}
	if dad := strings.TrimSpace(r.Host.Command("sysctl", "-n",
		"net.ipv6.conf."+name+".accept_dad")); dad != "0" {
		t.Errorf("the bridge uses duplicate address detection: accept_dad is %s", dad)
	}
	var before string
	// without duplicate address detection, once a kernel worker has run
	testnet.Eventually(t, func() error {
		if before = address(); strings.Contains(before, "tentative") {
			return errors.New(before)
		}
		return nil
	})
	mac, err := net.ParseMAC(show(t, r.Host, name).Address)
	if err != nil {
		t.Fatal(err)
	}
	eui := append(append(mac[:3:3], 0xff, 0xfe), mac[3:]...)
	eui[0] ^= 2
	want := netip.AddrFrom16([16]byte(append([]byte{0xfe, 0x80, 15: 0}[:8:8], eui...))).String()
	if !strings.Contains(before, want+"/64") {
		t.Fatalf("bridge with MAC address %s has %q, want %s", mac, before, want)
	}
	r.Container("c").Command("ip", "link", "set", "eth0", "up")
	r.Add("d")
	if after := address(); after != before {
		t.Errorf("with a second port it has %q", after)
	}
}

// TestPort: port isolation, and hairpin mode in addition.
func TestPort(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		members           string
		hairpin, isolated bool
	}{
		{"", false, false}, {`,"hairpinMode":true`, true, false}, {`,"portIsolation":true`,
			false, true},
		{`,"hairpinMode":true,"portIsolation":true`, true, true},
	} {
		t.Run(row.members, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			port := show(t, r.Host, r.Add("c").Interfaces[1].Name).LinkInfo.SlaveData
			if port.Hairpin != row.hairpin || port.Isolated != row.isolated {
				t.Errorf("port is %+v", port)
			}
		})
	}
}

// TestPromiscuous: CHECK requires promiscuous mode if it is configured, and otherwise accepts a
// packet capture.
func TestPromiscuous(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			t.Parallel()
			r := runtime(t, fmt.Sprintf(`,"promiscMode":%t`, on))
			r.Add("c")
			r.Add("d")
			if got := show(t, r.Host, "br0").Promisc; (got == 1) != on || got > 1 {
				t.Errorf("promiscuity is %d", got)
			}
			r.Check("c")
			r.Host.Command("ip", "link", "set", "br0", "promisc", map[bool]string{
				true: "off", false: "on",
			}[on])
			if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); (err != nil) != on {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

// TestMAC: precedence of the sources of a MAC address.
func TestMAC(t *testing.T) {
	t.Parallel()
	const env, conf, capability = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
	for _, row := range []struct{ name, members, args, want string }{
		{"CNI_ARGS", "", "MAC=" + env, env},
		{"args", `,"args":{"cni":{"mac":"` + conf + `"}}`, "MAC=" + env, conf},
		{"capability", `,"args":{"cni":{"mac":"` + conf + `"}},"RuntimeConfig":{"mac":"` +
			capability + `"}`, "MAC=" + env, capability},
		{"capitals and hyphens", `,"runtimeConfig":{"mac":"02-00-00-00-00-0A"}`, "",
			"02:00:00:00:00:0a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			q := r.Request(cni.Add, "c")
			q.Args = row.args
			r.Must(q)
			if got := show(t, r.Container("c"), "eth0").Address; got != row.want {
				t.Errorf("MAC is %s, want %s", got, row.want)
			}
		})
	}
}

func TestArgsAreStrict(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	q := r.Request(cni.Add, "c")
	q.Args = "K8S_POD_NAME=web"
	plugintest.Says(t, r.Refused(q, cni.CodeInvalidEnvironment), "K8S_POD_NAME")
	q.Args += ";IgnoreUnknown=1"
	r.Must(q)
}

// TestNameClash: the error contains the name and the namespace (PL-ADD-02, PL-ADD-03).
func TestNameClash(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam4)
	r.Add("first") // the bridge
	c := r.Container("c")
	c.Command("ip", "link", "add", "eth0", "type", "bridge")
	before := r.State()
	err := r.Refused(r.Request(cni.Add, "c"), plugin.CodeInUse)
	plugintest.Says(t, err, `"eth0" exists`)
	plugintest.Says(t, err, c.Path())
	r.Unchanged(before)
}

// TestOwnNamespace: with the host's own namespace ADD changes nothing, also as a separate process.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	for _, exec := range []bool{false, true} {
		t.Run(fmt.Sprintf("process %t", exec), func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+ipam4)
			r.Exec = exec
			r.Container("c")
			before := r.State()
			for _, verb := range []cni.Command{cni.Add, cni.Del} {
				q := r.Request(verb, "c")
				q.Netns = "/proc/thread-self/ns/net"
				r.Refused(q, cni.CodeOwnNamespace)
			}
			r.Unchanged(before)
		})
	}
}

// TestManyAtFirst: containers start at the same time, on a host without bridge, address and table
//
func TestManyAtFirst(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+`,"ipMasq":true`+ipamDual)
	r.Exec = true
	const n = 50
	requests := make([]plugintest.Request, n)
	for i := range requests {
		requests[i] = r.Request(cni.Add, fmt.Sprintf("c-%d", i))
	}
	results := make([]json.RawMessage, n)
	var wg sync.WaitGroup
	for i, q := range requests {
		wg.Go(func() {
			var err error
			if results[i], err = r.Do(context.WithoutCancel(t.Context()), q); err != nil {
				t.Errorf("%s: %v", q.ContainerID, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	r.Exec = false
	seen := map[netip.Prefix]bool{}
	for i, out := range results {
		result, err := cni.DecodeResultStrict(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, ip := range result.IPs {
			if seen[ip.Address] {
				t.Errorf("%s was allocated twice", ip.Address)
			}
			seen[ip.Address] = true
		}
		q := r.Request(cni.Check, fmt.Sprintf("c-%d", i))
		q.Conf["prevResult"] = out
		r.Must(q)
	}
}

// A bridge that is its own IPAM plugin would call itself for ever. ADD refuses it before any
// change; DEL and GC of a network that was changed in this way still clean up.
func TestOwnIPAM(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+ipam4)
	r.Add("c")
	r.Conf["ipam"] = map[string]any{"type": "bridge"}
	add := r.Request(cni.Add, "other")
	before := r.State()
	r.Refused(add, cni.CodeInvalidConfig)
	r.Unchanged(before)
	r.Must(r.Request(cni.Del, "c"))
	r.Must(r.Collect())
	if links := r.Host.Command("ip", "-br", "link", "show", "type", "veth"); links != "" {
		t.Errorf("left %s", links)
	}
}
