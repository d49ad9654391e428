package macvlan_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/macvlan"
)

// runtime creates a host with an interface uplink to another host; members are added to the
// plugin's configuration.
func runtime(t *testing.T, members string) (r *plugintest.Runtime, outside *plugintest.Namespace) {
	t.Helper()
	testnet.Require(t, macvlans)
	r = plugintest.NewRuntime(t, macvlan.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"macvlan","master":"uplink"`+members+`}`)
	return r, r.Uplink()
}

// ipam has addresses of the uplink's networks, and routes to networks behind the other host.
const ipam = `,"ipam":{"type":"host-local","ranges":[
	[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","gateway":"192.0.2.2"}],
	[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10","gateway":"2001:db8::2"}]],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"198.51.100.0/24","priority":7,"mtu":1300,"advmss":1200}]}`

// link is the part of the output of ip that the tests compare.
type link struct {
	Address  string
	MTU      int
	IfAlias  string
	Flags    []string
	LinkInfo struct {
		Kind string `json:"info_kind"`
		Data struct {
			Mode       string
			BCQueueLen int
		} `json:"info_data"`
	}
}

func show(t *testing.T, ns *plugintest.Namespace, name string) link {
	t.Helper()
	var links []link
	out := ns.Command("ip", "-j", "-d", "link", "show", "dev", name)
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	return links[0]
}

// merge adds members, a JSON object without its braces, to the configuration of a request.
func merge(t *testing.T, q *plugintest.Request, members string) {
	t.Helper()
	if err := json.Unmarshal([]byte("{"+members+"}"), &q.Conf); err != nil {
		t.Fatal(err)
	}
}

// TestConfiguration tests configurations that ADD refuses before its first change. DEL accepts all
// of them.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, "")
	r.Container("c")
	before := r.State()
	for _, row := range []struct{ name, members, args, says string }{
		{"unknown mode", `"mode":"hairpin"`, "", `mode: "hairpin"`},
		{"mode with a capital", `"mode":"Bridge"`, "", `mode: "Bridge"`},
		{"negative MTU", `"mtu":-1`, "", "-1"},
		{"MTU above the maximum", `"mtu":65536`, "", "65536"},
		{"malformed MAC", `"mac":"02:00"`, "", "02:00"},
		{"multicast MAC", `"mac":"01:00:5e:00:00:01"`, "", "01:00:5e:00:00:01"},
		{"zero MAC", `"mac":"00:00:00:00:00:00"`, "", "00:00:00:00:00:00"},
		{"MAC of 8 bytes", `"mac":"02:00:00:00:00:00:00:01"`, "", "02:00:00:00:00:00:00:01"},
		{"malformed MAC in the capability", `"runtimeConfig":{"mac":"x"}`, "", "address x"},
		{"malformed MAC in CNI_ARGS", ``, "MAC=y", "address y"},
		{"unknown dad", `"dad":"maybe"`, "", "maybe"},
		{"unknown secondDefaultRoute", `"secondDefaultRoute":"replace"`, "", "replace"},
		{"no addresses in version 0.2.0", `"cniVersion":"0.2.0"`, "", "0.3.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, verb := range []cni.Command{cni.Add, cni.Status} {
				q := r.Request(verb, "c")
				merge(t, &q, row.members)
				q.Args = row.args
				if q.Conf["cniVersion"] != "1.1.0" && verb == cni.Status {
					continue
				}
				plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), row.says)
				q.Command = cni.Del
				r.Must(q)
			}
		})
	}
	r.Unchanged(before)
}

// TestStatus: STATUS fails without the parent, because no ADD can succeed until an administrator
// changes the host. The runtime provides a parent in the container, so STATUS does not require it.
func TestStatus(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, "")
	for _, row := range []struct{ name, members, says string }{
		{"parent", ``, ""},
		{"no such parent", `"master":"absent"`, `"absent": not found in the host`},
		{"no default route", `"master":""`,
			"no default route interface found: the host has no default route"},
		{"no such parent in the container", `"master":"absent","linkInContainer":true`, ""},
	} {
		q := r.Request(cni.Status, "c")
		merge(t, &q, row.members)
		if row.says == "" {
			r.Must(q)
			continue
		}
		plugintest.Says(t, r.Refused(q, cni.CodeNotAvailable), row.says)
	}
	r.Host.Batch("link set uplink up", "route add default via 192.0.2.254")
	q := r.Request(cni.Status, "c")
	merge(t, &q, `"master":""`)
	r.Must(q)
}

// TestArgsAreStrict: ADD refuses unknown CNI_ARGS unless IgnoreUnknown is set.
func TestArgsAreStrict(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, "")
	q := r.Request(cni.Add, "c")
	q.Args = "K8S_POD_NAME=web"
	plugintest.Says(t, r.Refused(q, cni.CodeInvalidEnvironment), "K8S_POD_NAME")
	q.Args += ";IgnoreUnknown=1"
	r.Must(q)
}

// TestMTU: the MTU is at most the parent's; the error for a larger value contains both.
func TestMTU(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, "")
	r.Host.Command("ip", "link", "set", "uplink", "mtu", "1450")
	r.Container("c")
	before := r.State()
	r.Conf["mtu"] = 1451
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig),
		"invalid MTU 1451, must be [0, master MTU(1450)]")
	r.Unchanged(before)
	for mtu, want := range map[int]int{0: 1450, 1450: 1450, 1300: 1300} {
		r.Conf["mtu"] = mtu
		r.Add("c")
		if got := show(t, r.Container("c"), "eth0").MTU; got != want {
			t.Errorf("mtu %d: MTU is %d, want %d", mtu, got, want)
		}
		r.Del("c")
	}
}

// TestNoMaster: ADD reports a missing parent, however it is named, and DEL succeeds.
func TestNoMaster(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, members, says string }{
		{"in the host", `"master":"absent"`, `"absent": not found in the host`},
		{"in the container, where the host has one", `"linkInContainer":true`,
			`"uplink": not found in the container`},
		{"an alternative name", `"master":"a-name-that-is-long"`, "a-name-that-is-long"},
		{"longer than any name", `"master":"` + strings.Repeat("x", 200) + `"`, "xxx"},
		{"a path", `"master":"../eth0"`, "../eth0"},
		{"no default route", `"master":""`,
			"no default route interface found: the host has no default route"},
		{"no default route in the container", `"master":"","linkInContainer":true`,
			"no default route interface found: the container (linkInContainer) has no default route"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, ipam)
			r.Container("c")
			before := r.State()
			q := r.Request(cni.Add, "c")
			merge(t, &q, row.members)
			plugintest.Says(t, r.Refused(q, cni.CodeInvalidConfig), row.says)
			r.Unchanged(before)
			q.Command = cni.Del
			r.Must(q)
			r.Unchanged(before)
		})
	}
}

// TestMaster: the parent is found by its name, by an alternative name and by the default route, in
// the host and in the container. The new interface has its final name and a tag, and is up.
func TestMaster(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{false, true} {
		for _, master := range []string{"uplink", "an-alternative-name", ""} {
			t.Run(fmt.Sprintf("linkInContainer %t, master %q", inside, master), func(t *testing.T) {
				t.Parallel()
				r, outside := runtime(t, ipam)
				r.Conf["master"], r.Conf["linkInContainer"] = master, inside
				if inside {
					r.Host.Command("ip", "link", "set", "uplink", "netns", r.Container("c").Path())
				}
				where := r.Host
				if inside {
					where = r.Container("c")
				}
				where.Batch("link add other up type bridge", "link set uplink up",
					"link property add dev uplink altname an-alternative-name",
					"route add default dev other metric 50", "route add default dev uplink "+
						"metric 40")
				r.Add("c")
				r.Check("c")
				if l := show(t, r.Container("c"), "eth0"); l.LinkInfo.Kind != "macvlan" ||
					!slices.Contains(l.Flags, "UP") || !strings.HasPrefix(l.IfAlias, "tenon:") {
					t.Errorf("%+v", l)
				}
				outside.Command("ip", "address", "add", "192.0.2.99/24", "dev", "eth0")
				if !strings.Contains(r.Container("c").Command("ip", "link", "show", "dev", "eth0"),
					"LOWER_UP") {
					t.Error("no carrier")
				}
			})
		}
	}
}

// TestMode: the kernel receives the mode and the queue length.
func TestMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []macvlan.Mode{"", macvlan.Bridge, macvlan.Private, macvlan.VEPA,
		macvlan.Passthru} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, fmt.Sprintf(`,"mode":%q,"bcqueuelen":321`, mode))
			r.Add("c")
			r.Check("c")
			got := show(t, r.Container("c"), "eth0").LinkInfo.Data
			if want := string(mode); got.Mode != want && (want != "" || got.Mode != "bridge") ||
				got.BCQueueLen != 321 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestMAC tests the precedence of the sources of the MAC address. Without ipam the container has no
// addresses.
func TestMAC(t *testing.T) {
	t.Parallel()
	const key, env, conf, capability = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:04"
	const all = `"mac":"` + key + `","args":{"cni":{"mac":"` + conf + `"}}`
	for _, row := range []struct{ name, members, args, want string }{
		{"key", all, "", key},
		{"CNI_ARGS", all, "IgnoreUnknown=true;MAC=" + env, env},
		{"capability", all + `,"RuntimeConfig":{"mac":"` + capability + `"}`, "MAC=" + env,
			capability},
		{"capitals and hyphens", `"mac":"02-00-00-00-00-0A"`, "", "02:00:00:00:00:0a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, "")
			q := r.Request(cni.Add, "c")
			merge(t, &q, row.members)
			q.Args = row.args
			result, err := cni.DecodeResultStrict(r.Must(q), 0)
			if err != nil {
				t.Fatal(err)
			}
			want := []cni.Interface{{Name: "eth0", MAC: row.want, Sandbox: r.Container("c").Path()}}
			if diff := cmp.Diff(want, result.Interfaces); diff != "" {
				t.Error(diff)
			}
			if got := show(t, r.Container("c"), "eth0").Address; got != row.want {
				t.Errorf("MAC is %s, want %s", got, row.want)
			}
			if out := r.Container("c").
				Command("ip", "-4", "address"); strings.Contains(out, "eth0") ||
				len(result.IPs) > 0 {
				t.Errorf("addresses: %s, %v", out, result.IPs)
			}
		})
	}
}

// TestNameClash: the error contains the name and the namespace; the existing interface stays.
func TestNameClash(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	c := r.Container("c")
	c.Command("ip", "link", "add", "eth0", "type", "bridge")
	before := r.State()
	err := r.Refused(r.Request(cni.Add, "c"), plugin.CodeInUse)
	plugintest.Says(t, err, `"eth0" exists`)
	plugintest.Says(t, err, c.Path())
	r.Unchanged(before)
}

// TestInterfaceNameWithADot: ADD writes the sysctls of an interface with a dot in its name.
func TestInterfaceNameWithADot(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	q := r.Request(cni.Add, "c")
	q.IfName = "net1.100"
	q.Conf["prevResult"] = r.Must(q)
	for _, key := range []string{"ipv4/conf/net1.100/arp_notify",
		"ipv6/conf/net1.100/ndisc_notify"} {
		if got := strings.TrimSpace(r.Container("c").
			Command("cat", "/proc/sys/net/"+key)); got != "1" {
			t.Errorf("%s is %s", key, got)
		}
	}
	for _, verb := range []cni.Command{cni.Check, cni.Del} {
		q.Command = verb
		r.Must(q)
	}
}

// TestDNS: the result has the DNS settings of the configuration, or none.
func TestDNS(t *testing.T) {
	t.Parallel()
	for dns, want := range map[string]cni.DNS{`null`: {},
		`{"search":["s"]}`: {Search: []string{"s"}}} {
		r, _ := runtime(t,
			`,"dns":`+
				dns+`,"ipam":{"type":"static","addresses":[{"address":"192.0.2.9/24"}],"dns":{"domain":"ipam"}}`)
		if diff := cmp.Diff(want, r.Add("c").DNS); diff != "" {
			t.Errorf("dns %s: %s", dns, diff)
		}
	}
}

// TestDelWithoutParent: DEL releases the address without the parent, the namespace or prevResult
//
func TestDelWithoutParent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*plugintest.Request){
		"whole":     func(*plugintest.Request) {},
		"no master": func(q *plugintest.Request) { delete(q.Conf, "master") },
		"no result": func(q *plugintest.Request) { delete(q.Conf, "prevResult") },
		"no netns":  func(q *plugintest.Request) { q.Netns = "" },
		"wrong types": func(q *plugintest.Request) {
			q.Conf["master"], q.Conf["mode"], q.Conf["mtu"] = 5, 6, "x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, ipam)
			r.Add("c")
			r.Host.Command("ip", "link", "delete", "uplink")
			plugintest.Says(t, r.Refused(r.Request(cni.Check, "c"), cni.CodeInternal), "eth0")
			q := r.Request(cni.Del, "c")
			change(&q)
			r.Must(q)
			r.Must(q)
			if left, _ := filepath.Glob(filepath.Join(r.Dir, "net", "[12]*")); len(left) > 0 {
				t.Errorf("reservations left: %v", left)
			}
		})
	}
}

// TestDelRenamed: DEL finds the interface after the container has renamed it, also if the name of
// the network does not fit into the alias. It leaves an interface of the container's own alone.
func TestDelRenamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"net", strings.Repeat("n", 200)} {
		for _, own := range []string{"", "link add eth0 type bridge",
			"link add eth0 link other type macvlan"} {
			r, _ := runtime(t, ipam)
			r.Conf["name"] = name
			c := r.Container("c")
			c.Batch("link add other type veth peer name far")
			r.Add("c")
			c.Batch("link set eth0 down", "link set eth0 name renamed")
			if own != "" {
				c.Batch(own)
			}
			q := r.Request(cni.Del, "c")
			r.Must(q)
			if c.Try("ip", "link", "show", "renamed") == nil {
				t.Errorf("%q, %q: the interface is still there", name, own)
			}
			if own != "" && c.Try("ip", "link", "show", "eth0") != nil {
				t.Errorf("%q, %q: DEL deleted an interface of the container's own", name, own)
			}
		}
	}
}

// TestRoutes: ADD applies and CHECK compares all attributes of a route; the default route of a
// second network gets its own metric.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r, _ := runtime(t, ipam)
	r.Add("c")
	c := r.Container("c")
	if out := c.Command("ip", "route", "show", "198.51.100.0/24"); !strings.Contains(out,
		"via 192.0.2.2 dev eth0 metric 7 mtu 1300 advmss 1200") {
		t.Errorf("route %s", out)
	}
	q := r.Request(cni.Add, "c")
	q.IfName = "eth1"
	q.Conf["name"] = "second"
	q.Conf["ipam"].(map[string]any)["ranges"] = []any{
		[]any{map[string]any{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.60",
			"gateway": "192.0.2.2"}},
		[]any{map[string]any{"subnet": "2001:db8::/64", "rangeStart": "2001:db8::60",
			"gateway": "2001:db8::2"}},
	}
	delete(q.Conf, "prevResult")
	r.Must(q)
	for family, want := range map[string]string{
		"-4": "default via 192.0.2.2 dev eth0 \ndefault via 192.0.2.2 dev eth1 metric 1 \n",
		"-6": "default via 2001:db8::2 dev eth0 metric 1024 pref medium\ndefault via 2001:db8::2 " +
			"dev eth1 metric 1025 pref medium\n",
	} {
		if diff := cmp.Diff(want, c.Command("ip", family, "route", "show", "default")); diff != "" {
			t.Error(diff)
		}
	}
	r.Check("c")
	c.Batch("route delete 198.51.100.0/24 dev eth0",
		"route append 198.51.100.0/24 via 192.0.2.2 dev eth0 metric 7 mtu 1301 advmss 1200")
	plugintest.Says(t, r.Refused(r.Request(cni.Check, "c"), cni.CodeInternal), "mtu 1300")
}

// TestTakeover: Tenon checks and deletes attachments of the upstream plugin, and the reverse.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const upstream = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "macvlan")))
	for _, tenonAdds := range []bool{true, false} {
		t.Run(fmt.Sprintf("Tenon adds %t", tenonAdds), func(t *testing.T) {
			t.Parallel()
			r, _ := runtime(t, ipam)
			// upstream requires a gateway in each route
			delete(r.Conf["ipam"].(map[string]any), "routes")
			r.Conf["cniVersion"] = "1.0.0" // the newest version of Debian's upstream plugins
			if diff := r.Mixed(upstream, tenonAdds); strings.Contains(diff, "eth0") ||
				strings.Contains(diff, "192.0.2.1") {
				t.Error(diff)
			}
		})
	}
}
