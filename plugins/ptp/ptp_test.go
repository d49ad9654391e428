package ptp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/ptp"
)

// runtime creates a host with a network; members are JSON members of the plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	return plugintest.NewRuntime(t, ptp.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"ptp"`+members+`}`)
}

// Members of configurations.
const (
	ipam4    = `,"ipam":{"type":"host-local","subnet":"10.1.2.0/24"}`
	ipamDual = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:7::/64"}]],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
)

// static returns an ipam member with these addresses and, after them, routes and other members.
func static(addresses, more string) string {
	return `,"ipam":{"type":"static","addresses":[` + addresses + `]` + more + `}`
}

// routes lists the routes of a namespace without link-local routes, and with HOSTEND as the name of
// the host-side veth.
func routes(ns *plugintest.Namespace, family string) []string {
	var list []string
	for line := range strings.Lines(ns.Command("ip", "-o", family, "route", "show")) {
		line = strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(line), " pref medium"),
			" proto kernel", "")
		if !strings.HasPrefix(line, "fe80::") && !strings.HasPrefix(line, "multicast") {
			list = append(list, hostEnds.ReplaceAllString(strings.Join(strings.Fields(line), " "),
				"HOSTEND"))
		}
	}
	return list
}

var hostEnds = regexp.MustCompile(`veth[0-9a-v]{11}`)

func compare(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestRoutes compares the routes with upstream's.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipamDual)
	result := r.Add("c")
	r.Check("c")
	c := r.Container("c")
	compare(t, "container, IPv4", []string{
		"default via 10.1.2.1 dev eth0",
		"10.1.2.0/24 via 10.1.2.1 dev eth0 src 10.1.2.2",
		"10.1.2.1 dev eth0 scope link src 10.1.2.2",
	}, routes(c, "-4"))
	compare(t, "container, IPv6", []string{
		"fd00:7::1 dev eth0 src fd00:7::2 metric 1024",
		"fd00:7::/64 via fd00:7::1 dev eth0 src fd00:7::2 metric 1024",
		"default via fd00:7::1 dev eth0 metric 1024",
	}, routes(c, "-6"))
	compare(t, "host, IPv4", []string{"10.1.2.2 dev HOSTEND scope host"}, routes(r.Host, "-4"))
	compare(t, "host, IPv6", []string{
		"fd00:7::1 dev HOSTEND metric 256", // comes with the address
		"fd00:7::2 dev HOSTEND metric 1024",
	}, routes(r.Host, "-6"))
	for _, key := range []string{
		// CVE-2020-10749
		"ipv6/conf/%s/accept_ra", "ipv6/conf/%s/accept_redirects", "ipv4/conf/%s/accept_redirects",
		// otherwise the host sends no neighbour solicitation for up to two seconds
		"ipv6/conf/%s/accept_dad",
	} {
		key = fmt.Sprintf("/proc/sys/net/"+key, result.Interfaces[0].Name)
		if got := strings.TrimSpace(r.Host.Command("cat", key)); got != "0" {
			t.Errorf("%s is %s", key, got)
		}
	}
	for file, family := range map[string]string{
		"net/ipv4/ip_forward": "IPv4", "net/ipv6/conf/all/forwarding": "IPv6",
	} {
		if got := strings.TrimSpace(r.Host.Command("cat", "/proc/sys/"+file)); got != "1" {
			t.Errorf("forwarding of %s is %s", family, got)
		}
	}
}

// TestResult compares the form of the result with upstream's (RES-02, RES-03, PL-ADD-02,
// PL-ADD-12).
func TestResult(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`+ipamDual)
	r.Conf["cniVersion"] = "1.0.0"
	var got any
	out := r.Must(r.Request(cni.Add, "c"))
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	type link struct {
		IfName, Address string
		MTU, TxQLen     int
	}
	show := func(ns *plugintest.Namespace, filter ...string) (l link) {
		var links []link
		text := ns.Command("ip", append([]string{"-j", "link", "show"}, filter...)...)
		if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 {
			t.Fatalf("%v in %s", err, text)
		}
		if links[0].MTU != 1400 || links[0].TxQLen != 1000 { // the kernel's default queue length
			t.Errorf("%+v", links[0])
		}
		return links[0]
	}
	host, inside := show(r.Host, "type", "veth"), show(r.Container("c"), "dev", "eth0")
	want := map[string]any{
		"cniVersion": "1.0.0",
		"interfaces": []any{
			map[string]any{"name": host.IfName, "mac": host.Address},
			map[string]any{
				"name": "eth0", "mac": inside.Address, "sandbox": r.Container("c").Path(),
			},
		},
		"ips": []any{
			map[string]any{"address": "10.1.2.2/24", "gateway": "10.1.2.1", "interface": 1.0},
			map[string]any{"address": "fd00:7::2/64", "gateway": "fd00:7::1", "interface": 1.0},
		},
		"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
}

// TestConfigurations: dual stack with a /66 and three routes, and further configurations; CHECK
// accepts each.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		want4, want6  []string
	}{
		{
			"three routes and a /66",
			`,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/66"}]],
				"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16"},{"dst":"1.2.3.4/32"}]}`,
			[]string{
				"default via 10.1.2.1 dev eth0",
				"1.2.3.4 via 10.1.2.1 dev eth0",
				"10.1.2.0/24 via 10.1.2.1 dev eth0 src 10.1.2.2",
				"10.1.2.1 dev eth0 scope link src 10.1.2.2",
				"192.168.0.0/16 via 10.1.2.1 dev eth0",
			},
			[]string{
				"2001:db8:1::1 dev eth0 src 2001:db8:1::2 metric 1024",
				"2001:db8:1::/66 via 2001:db8:1::1 dev eth0 src 2001:db8:1::2 metric 1024",
			},
		},
		{
			"single address, gateway in another network",
			static(`{"address":"203.0.113.7/32","gateway":"169.254.1.1"},{"address":"2001:db8::7/128","gateway":"fe80::1"}`,
				`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`),
			[]string{
				"default via 169.254.1.1 dev eth0",
				"169.254.1.1 dev eth0 scope link src 203.0.113.7",
			},
			[]string{"2001:db8::7 dev eth0 metric 256", "default via fe80::1 dev eth0 metric 1024"},
		},
		{
			"network with a gateway in another network",
			static(`{"address":"10.1.2.2/24","gateway":"169.254.1.1"}`,
				`,"routes":[{"dst":"0.0.0.0/0"}]`),
			[]string{
				"default via 169.254.1.1 dev eth0",
				"10.1.2.0/24 via 169.254.1.1 dev eth0 src 10.1.2.2",
				"169.254.1.1 dev eth0 scope link src 10.1.2.2",
			},
			nil,
		},
		{
			"two addresses of one network",
			static(`{"address":"10.1.2.2/24","gateway":"10.1.2.1"},{"address":"10.1.2.3/24","gateway":"10.1.2.1"}`,
				""),
			[]string{
				"10.1.2.0/24 via 10.1.2.1 dev eth0 src 10.1.2.2",
				"10.1.2.1 dev eth0 scope link src 10.1.2.2",
			},
			nil,
		},
		{
			"gateway that is another container",
			static(`{"address":"10.1.2.2/24","gateway":"10.1.2.1"}`,
				`,"routes":[{"dst":"192.168.0.0/16","gw":"10.1.2.9"}]`),
			[]string{
				"10.1.2.0/24 via 10.1.2.1 dev eth0 src 10.1.2.2",
				"10.1.2.1 dev eth0 scope link src 10.1.2.2",
				"192.168.0.0/16 via 10.1.2.9 dev eth0",
			},
			nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Add("c")
			r.Check("c")
			compare(t, "container, IPv4", row.want4, routes(r.Container("c"), "-4"))
			compare(t, "container, IPv6", row.want6, routes(r.Container("c"), "-6"))
			r.Del("c")
			compare(t, "host after DEL", nil, routes(r.Host, "-4"))
		})
	}
}

// TestRefused: these configurations are refused, nothing stays, and DEL succeeds (CONV-07).
func TestRefused(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam4)
	r.Add("used")
	r.Del("used")
	r.Container("c")
	before := r.State()
	for _, row := range []struct {
		name, members, says string
		code                cni.Code
	}{
		{"no ipam", `"ipam":null`, "add ipam", cni.CodeInvalidConfig},
		{"empty ipam", `"ipam":{}`, "add ipam", cni.CodeInvalidConfig},
		{"ipam without a type", `"ipam":{"type":""}`, "add ipam", cni.CodeInvalidConfig},
		{"address without a gateway",
			`"ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24"}]}`,
			"address 10.1.2.2/24 of IPAM plugin static has no gateway", cni.CodeInvalidConfig},
		{"gateway of the other family",
			`"ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24","gateway":"fd00::1"}]}`,
			"gateway fd00::1 of address 10.1.2.2/24", cni.CodeInvalidConfig},
		{"address that is its own gateway",
			`"ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24","gateway":"10.1.2.2"}]}`,
			"gateway 10.1.2.2 of address 10.1.2.2/24", cni.CodeInvalidConfig},
		{"no address", `"ipam":{"type":"static"}`, "missing IP config", cni.CodeInvalidConfig},
		{"negative MTU", `"mtu":-1`, "mtu", cni.CodeInvalidConfig},
		{"impossible MTU", `"mtu":65536`, "65536", cni.CodeInvalidConfig},
		{"MTU below the least of IPv4", `"mtu":67`, "67 is less than 68", cni.CodeInvalidConfig},
		{"unknown backend", `"ipMasqBackend":"ebtables"`, "ebtables", cni.CodeInvalidConfig},
		{"unknown value of secondDefaultRoute", `"secondDefaultRoute":"replace"`, "replace",
			cni.CodeInvalidConfig},
		{"missing IPAM plugin", `"ipam":{"type":"absent"}`, "absent", cni.CodeInvalidConfig},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := r.Request(cni.Add, "c")
			delete(q.Conf, "ipam")
			if err := json.Unmarshal([]byte(`{`+strings.TrimPrefix(ipam4, ",")+`}`),
				&q.Conf); err != nil {
				t.Fatal(err)
			}
			q.Conf["ipam"].(map[string]any)["dataDir"] = r.Dir
			if err := json.Unmarshal([]byte("{"+row.members+"}"), &q.Conf); err != nil {
				t.Fatal(err)
			}
			_, err := r.Do(t.Context(), q)
			if code := cni.CodeOf(err); code != row.code ||
				!strings.Contains(err.Error(), row.says) {
				t.Errorf("code %d, want %d, error with %q: %v", code, row.code, row.says, err)
			}
			q.Command = cni.Del
			if _, err := r.Do(t.Context(), q); err != nil && row.name != "missing IPAM plugin" {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	r.Unchanged(before)
}

// TestDNS: any member of the configuration's dns replaces all DNS settings of IPAM (DNS-04,
// RES-15).
func TestDNS(t *testing.T) {
	t.Parallel()
	resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte("nameserver 10.9.9.9\nsearch example.com\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, dns string
		want      cni.DNS
	}{
		{"all members",
			`,"dns":{"nameservers":["9.9.9.9"],"domain":"d","search":["s"],"options":["o"]}`,
			cni.DNS{Nameservers: []string{"9.9.9.9"}, Domain: "d", Search: []string{"s"},
				Options: []string{"o"}}},
		{"none", "", cni.DNS{Nameservers: []string{"10.9.9.9"}, Search: []string{"example.com"}}},
		{"nameservers", `,"dns":{"nameservers":["9.9.9.9"]}`,
			cni.DNS{Nameservers: []string{"9.9.9.9"}}},
		{"domain", `,"dns":{"domain":"d"}`, cni.DNS{Domain: "d"}},
		{"search", `,"dns":{"search":["s"]}`, cni.DNS{Search: []string{"s"}}},
		{"options", `,"dns":{"options":["o"]}`, cni.DNS{Options: []string{"o"}}},
		{"empty lists", `,"dns":{"nameservers":[],"search":[],"options":[]}`, cni.DNS{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t,
				row.dns+`,"ipam":{"type":"host-local","subnet":"10.1.2.0/24","resolvConf":"`+resolvConf+`"}`)
			if diff := cmp.Diff(row.want, r.Add("c").DNS); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVersions: every version, with and without masquerading by either backend; the container
// reaches its gateways. CHECK is refused in versions without it (PL-CHK-01).
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, masq := range []string{"", `,"ipMasq":true`, `,"ipMasq":true,"ipMasqBackend":"nftables"`,
		`,"ipMasq":true,"ipMasqBackend":"iptables"`} {
		t.Run(masq, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, masq+ipamDual)
			for _, v := range cni.Versions() {
				r.Conf["cniVersion"] = v.String()
				ips := r.Add("c").IPs
				if len(ips) != 2 {
					t.Errorf("%v: addresses %v", v, ips)
				}
				for _, ip := range ips {
					testnet.Reaches(t, r.Container("c"), ip.Gateway, true)
				}
				if v.Has(cni.Check) {
					r.Check("c")
				} else {
					r.Refused(r.Request(cni.Check, "c"), cni.CodeIncompatibleVersion)
				}
				r.Del("c")
			}
		})
	}
}

// TestNames: the interface name can contain a dot, and can equal the name of a host interface. A
// name that exists in the container is refused (PL-ADD-03).
func TestNames(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ipMasq":true`+ipamDual)
	r.Host.Command("ip", "link", "add", "eth0", "type", "bridge")
	for _, name := range []string{"eth0", "eth0.100", "a.b.c"} {
		q := r.Request(cni.Add, "c")
		q.IfName = name
		q.Conf["prevResult"] = nil
		prev := r.Must(q)
		if err := r.Refused(q, plugin.CodeInUse); err == nil ||
			!strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), r.Container("c").Path()) {
			t.Errorf("name clash: %v", err)
		}
		q.Conf["prevResult"] = prev
		for _, verb := range []cni.Command{cni.Check, cni.Del, cni.Del} {
			q.Command = verb
			r.Must(q)
		}
	}
	if left := r.Host.Command("ip", "-br", "link", "show", "type", "veth"); left != "" {
		t.Errorf("left %s", left)
	}
}

// TestIPv6Off: IPv4 works with IPv6 disabled on the host and in the container.
func TestIPv6Off(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ipMasq":true`+ipam4)
	for _, ns := range []*plugintest.Namespace{r.Host, r.Container("c")} {
		ns.Command("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
			"net.ipv6.conf.default.disable_ipv6=1")
	}
	r.Add("c")
	r.Check("c")
}
