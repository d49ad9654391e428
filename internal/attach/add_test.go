package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
)

var values = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// TestResult: the plugin fills in interface indexes and passes on the rest of IPAM's result as
// received (IPAM-01, IPAM-04).
func TestResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{cni.Add: invoke.Print(`{"cniVersion":"0.4.0",
		"ips":[{"version":"4","address":"10.0.0.2/24","gateway":"10.0.0.1"},{"version":"6","address":"fd00::2/64"}],
		"routes":[{"dst":"192.168.0.0/16"},{"dst":"192.168.7.9/16","gw":"10.0.0.9"}],"dns":{"domain":"pool"}}`)})
	r := b.add()
	want := &cni.Result{
		Interfaces: r.Interfaces,
		IPs: []cni.IP{
			{Address: netip.MustParsePrefix("10.0.0.2/24"), Gateway: netip.MustParseAddr("10.0.0.1"), Interface: cni.Some(1)},
			{Address: netip.MustParsePrefix("fd00::2/64"), Interface: cni.Some(1)},
		},
		Routes: []cni.Route{
			{Dst: netip.MustParsePrefix("192.168.0.0/16")},
			{Dst: netip.MustParsePrefix("192.168.7.9/16"), GW: netip.MustParseAddr("10.0.0.9")},
		},
		DNS: cni.DNS{Domain: "pool"},
	}
	if diff := cmp.Diff(want, r, values); diff != "" {
		t.Error(diff)
	}
	if i := r.Interfaces[1]; i.Name != "eth0" || i.Sandbox != b.Container("c").Path() || r.Interfaces[0].Sandbox != "" {
		t.Errorf("interfaces %+v", r.Interfaces)
	}
}

// TestDNSOfTheNetwork: dns of the configuration replaces IPAM's (DNS-04).
func TestDNSOfTheNetwork(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		dns  map[string]any
		want cni.DNS
	}{
		{"none", nil, cni.DNS{Domain: "pool", Nameservers: []string{"10.0.0.1"}}},
		{"empty", map[string]any{}, cni.DNS{Domain: "pool", Nameservers: []string{"10.0.0.1"}}},
		{"any member replaces all", map[string]any{"search": []string{"s"}}, cni.DNS{Search: []string{"s"}}},
		{"an empty list counts as given", map[string]any{"nameservers": []string{}}, cni.DNS{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(address+`,"dns":{"domain":"pool","nameservers":["10.0.0.1"]}`))
			if row.dns != nil {
				b.conf["dns"] = row.dns
			}
			if diff := cmp.Diff(row.want, b.add().DNS); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBehindOthers: the result keeps the interfaces of earlier plugins, and its indexes remain
// correct (PL-ADD-06, RES-03). dns of IPAM and of the network takes precedence (DNS-02).
func TestBehindOthers(t *testing.T) {
	t.Parallel()
	const prev = `{"interfaces":[{"name":"lo","sandbox":"/c"}],"ips":[{"interface":0,"address":"127.0.0.1/8"}],` +
		`"routes":[{"dst":"10.0.0.0/24"}],"dns":{"domain":"before"}}`
	const given = address + `,"routes":[{"dst":"0.0.0.0/0"}]`
	for _, row := range []struct {
		name, pool string
		conf       any
		want       cni.DNS
	}{
		{"dns of the plugins before", given, nil, cni.DNS{Domain: "before"}},
		{"dns of IPAM", given + `,"dns":{"search":["s"]}`, nil, cni.DNS{Search: []string{"s"}}},
		{"dns of the network", given + `,"dns":{"search":["s"]}`, map[string]any{"nameservers": []string{}}, cni.DNS{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(row.pool))
			b.conf["prevResult"], b.conf["dns"] = json.RawMessage(prev), row.conf
			r := b.add()
			want := &cni.Result{
				Interfaces: append([]cni.Interface{{Name: "lo", Sandbox: "/c"}}, r.Interfaces[1:]...),
				IPs: []cni.IP{
					{Address: mustPrefix("127.0.0.1/8"), Interface: cni.Some(0)},
					{Address: mustPrefix("10.0.0.2/24"), Gateway: netip.MustParseAddr("10.0.0.1"), Interface: cni.Some(2)},
				},
				Routes: []cni.Route{{Dst: mustPrefix("10.0.0.0/24")}, {Dst: mustPrefix("0.0.0.0/0")}},
				DNS:    row.want,
			}
			if diff := cmp.Diff(want, r, values); diff != "" || len(r.Interfaces) != 3 || r.Interfaces[2].Name != "eth0" {
				t.Errorf("%+v\n%s", r.Interfaces, diff)
			}
			if err := b.call(cni.Check); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBehindOthersInOldVersion: the result in 0.1.0 and 0.2.0 has the address of the new interface,
// not the previous one.
func TestBehindOthersInOldVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address))
	b.conf["cniVersion"], b.conf["prevResult"] = "0.2.0", json.RawMessage(`{"ip4":{"ip":"192.0.2.2/24","gateway":"192.0.2.1"}}`)
	r := b.add()
	if len(r.IPs) != 1 || r.IPs[0].Address != mustPrefix("10.0.0.2/24") || r.IPs[0].Gateway != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("result %+v", r)
	}
}

// TestRoutes compares the routes that IPAM requests with the routes of the container, except those
// that come with its addresses.
func TestRoutes(t *testing.T) {
	t.Parallel()
	const dual = `"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64","gateway":"fd00::1"}],"routes":`
	for _, row := range []struct{ name, members, want string }{
		{"gateways of the addresses", dual + `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`, "default via 10.0.0.1; default via fd00::1 metric 1024"},
		{"gateway of its own", dual + `[{"dst":"192.168.0.0/16","gw":"10.0.0.9"}]`, "192.168.0.0/16 via 10.0.0.9"},
		{"no gateway at all", `"ips":[{"address":"10.0.0.2/24"}],"routes":[{"dst":"192.168.0.0/16"}]`, "192.168.0.0/16"},
		{"unspecified gateway is none", dual + `[{"dst":"192.168.0.0/16","gw":"0.0.0.0"}]`, "192.168.0.0/16"},
		{"scope link has no gateway", dual + `[{"dst":"192.168.0.0/16","scope":253}]`, "192.168.0.0/16 scope link"},
		{"host bits", dual + `[{"dst":"192.168.7.9/16"}]`, "192.168.0.0/16 via 10.0.0.1"},
		{"metric, MTU, segment size (R-76)", dual + `[{"dst":"192.168.0.0/16","priority":7,"mtu":1300,"advmss":1200}]`,
			"192.168.0.0/16 via 10.0.0.1 metric 7 mtu 1300 advmss 1200"},
		{"scope and table", dual + `[{"dst":"192.168.0.0/16","gw":"10.0.0.9","scope":200,"table":77}]`,
			"192.168.0.0/16 via 10.0.0.9 table 77 scope site"},
		{"table", dual + `[{"dst":"192.168.0.0/16","table":77}]`, "192.168.0.0/16 via 10.0.0.1 table 77"},
		{"same route twice", dual + `[{"dst":"0.0.0.0/0"},{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]`, "default via 10.0.0.1"},
		{"two gateways for one destination", dual + `[{"dst":"fd01::/64","gw":"fd00::8"},{"dst":"fd01::/64","gw":"fd00::9"}]`,
			"fd01::/64 metric 1024 nexthop via fd00::8 weight 1 nexthop via fd00::9 weight 1"},
		{"two gateways for one destination of IPv4", dual + `[{"dst":"192.168.0.0/16","gw":"10.0.0.8"},{"dst":"192.168.0.0/16","gw":"10.0.0.9"}]`,
			"192.168.0.0/16 via 10.0.0.9; 192.168.0.0/16 via 10.0.0.8"},
		{"next hop of the other family (RES-10)", dual + `[{"dst":"192.168.0.0/16","gw":"fe80::1"}]`, "192.168.0.0/16 via inet6 fe80::1"},
		{"gateway of the other family (RES-10)", `"ips":[{"address":"10.0.0.2/24","gateway":"fe80::1"}],"routes":[{"dst":"0.0.0.0/0"}]`, "default via inet6 fe80::1"},
		{"gateway of each family (RES-10)", `"ips":[{"address":"10.0.0.2/24","gateway":"fe80::1"},{"address":"10.0.0.3/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]`,
			"default via 10.0.0.1"},
		{"IPv6 through IPv4 is impossible (RES-10)", dual + `[{"dst":"fd01::/64","gw":"10.0.0.1"},{"dst":"fd02::/64"}]`, "fd02::/64 via fd00::1 metric 1024"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(row.members))
			b.add()
			if diff := cmp.Diff(row.want, b.routes()); diff != "" {
				t.Error(diff)
			}
			if err := b.call(cni.Check); err != nil {
				t.Error(err)
			}
		})
	}
}

// routes lists the routes of the container's interface that did not come with an address.
func (b *bench) routes() string {
	var all []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(b.inside("ip", "-o", family, "route", "show", "table", "all")) {
			line = strings.NewReplacer("\\\t", " ", " dev eth0", "", " pref medium", "").Replace(line)
			if strings.Contains(line, "proto kernel") || strings.HasPrefix(line, "multicast") || strings.HasPrefix(line, "fe80:") {
				continue
			}
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(all, "; ")
}

// TestAddressStays: IPv6 addresses outlive a link that goes down and up.
func TestAddressStays(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(`"ips":[{"address":"fd00::2/64"}]`))
	b.add()
	b.inside("ip", "link", "set", "eth0", "down")
	b.inside("ip", "link", "set", "eth0", "up")
	if err := b.call(cni.Check); err != nil {
		t.Error(err)
	}
}

// TestIndexOfIPAM: an IPAM plugin knows no interfaces, so indexes in its result are ignored
// (RES-10).
func TestIndexOfIPAM(t *testing.T) {
	t.Parallel()
	for _, index := range []string{"0", "1", "7", "-2", "-1", "null"} {
		b := newBench(t, pair{}, give(`"ips":[{"address":"10.0.0.2/24","interface":`+index+`}]`))
		if got := b.add().IPs[0].Interface; got != cni.Some(1) {
			t.Errorf("IPAM said %s, result %v", index, got)
		}
	}
	b := newBench(t, pair{}, give(`"interfaces":[{"name":"a"}],"ips":[{"address":"10.0.0.2/24","interface":0}]`))
	if got := b.add(); got.IPs[0].Interface != cni.Some(1) || len(got.Interfaces) != 2 {
		t.Errorf("IPAM listed an interface, result %+v", got)
	}
}

// TestSandboxByAnotherPath: CHECK compares sandboxes by the namespace, not by the path (RES-10).
func TestSandboxByAnotherPath(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address))
	b.add()
	prev := string(b.conf["prevResult"].(json.RawMessage))
	alias := filepath.Join(t.TempDir(), "netns")
	if err := os.Symlink(b.Container("c").Path(), alias); err != nil {
		t.Fatal(err)
	}
	for sandbox, found := range map[string]bool{alias: true, alias + "2": false, "": false} {
		b.conf["prevResult"] = json.RawMessage(strings.ReplaceAll(prev, b.Container("c").Path(), sandbox))
		if err := b.call(cni.Check); (err == nil) != found {
			t.Errorf("sandbox %q: %v", sandbox, err)
		}
	}
}

func TestGatewayOutOfReach(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address+`,"routes":[{"dst":"192.168.0.0/16","gw":"172.16.0.1"}]`))
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInvalidConfig, "192.168.0.0/16 via 172.16.0.1", "the gateway is in no network")
	b.unchanged(before)
	if b.asked() != "ADD DEL" {
		t.Errorf("IPAM was asked to %s", b.asked())
	}
}

// TestIPv6GatewayOutOfReach: the error is as in IPv4.
func TestIPv6GatewayOutOfReach(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(`"ips":[{"address":"fd00::2/64","gateway":"fd00:1::1"}],"routes":[{"dst":"::/0"}]`))
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInvalidConfig, "::/0 via fd00:1::1", "the gateway is in no network")
	b.unchanged(before)
}

// TestGatewayOnLink: the gateway of an address that is a network of its own is on the link.
func TestGatewayOnLink(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(`"ips":[{"address":"10.0.0.2/32","gateway":"192.0.2.1"},
		{"address":"fd00::2/128","gateway":"2001:db8::1"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`))
	before := b.state()
	b.add()
	for _, row := range [][2]string{{"-4", "default via 192.0.2.1"}, {"-4", "192.0.2.1 scope link"},
		{"-6", "default via 2001:db8::1"}, {"-6", "2001:db8::1 metric"}} {
		out := b.inside("ip", row[0], "route", "show", "dev", "eth0")
		if !strings.Contains(out, row[1]) {
			t.Errorf("no route %q in:\n%s", row[1], out)
		}
	}
	if err := b.call(cni.Check); err != nil {
		t.Error(err)
	}
	if err := b.call(cni.Del); err != nil {
		t.Error(err)
	}
	delete(b.conf, "prevResult")
	b.unchanged(before)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		conf          map[string]any
		want          map[string]string
	}{
		{"IPv4", address, nil, map[string]string{
			"ipv4/conf/eth0/arp_notify": "1", "ipv6/conf/eth0/ndisc_notify": "1", "ipv6/conf/eth0/accept_ra": "0", "ipv6/conf/eth0/accept_dad": "0",
			"ipv6/conf/eth0/keep_addr_on_down": "0",
		}},
		{"IPv6", `"ips":[{"address":"fd00::2/64"}]`, nil, map[string]string{
			"ipv6/conf/eth0/accept_ra": "0", "ipv6/conf/eth0/keep_addr_on_down": "1", "ipv6/conf/eth0/disable_ipv6": "0", "ipv6/conf/lo/disable_ipv6": "0",
		}},
		{"detection of duplicates", `"ips":[{"address":"fd00::2/64"}]`, map[string]any{"enabledad": true}, map[string]string{
			"ipv6/conf/eth0/accept_dad": "1", "ipv6/conf/eth0/enhanced_dad": "1",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(row.members))
			for key, value := range row.conf {
				b.conf[key] = value
			}
			b.inside("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
			b.add()
			got := map[string]string{}
			for key := range row.want {
				got[key] = strings.TrimSpace(b.inside("cat", "/proc/sys/net/"+key))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestIPv6IsUsable: an address can be bound when ADD returns, with and without a gateway and
// duplicate address detection.
func TestIPv6IsUsable(t *testing.T) {
	t.Parallel()
	for _, dad := range []bool{false, true} {
		t.Run(fmt.Sprintf("enabledad %t", dad), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(`"ips":[{"address":"fd00::2/64"}]`))
			b.conf["enabledad"] = dad
			b.add()
			if out := b.inside("ip", "-6", "address", "show", "dev", "eth0", "scope", "global"); strings.Contains(out, "tentative") || !strings.Contains(out, "fd00::2/64") {
				t.Error(out)
			}
		})
	}
}

// TestDuplicateIPv6Address: ADD finds another node with the address, fails, and leaves nothing
// behind.
func TestDuplicateIPv6Address(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(`"ips":[{"address":"fd00::2/64"}]`))
	b.conf["enabledad"] = true
	b.plugin = define(pair{make: func(ctx context.Context, s *session) ([]cni.Interface, error) {
		interfaces, err := (&pair{}).Make(ctx, s)
		if err != nil {
			return nil, err
		}
		b.Host.Command("ip", "address", "add", "fd00::2/64", "dev", s.HostName(), "nodad")
		return interfaces, nil
	}})
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInternal, "duplicate address", "fd00::2/64")
	b.unchanged(before)
}

// TestInterfaceNameWithADot: R-81
func TestInterfaceNameWithADot(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(`"ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64"}]`))
	env := b.env(cni.Add)
	env.IfName = "eth0.100"
	if _, err := b.serve(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(b.inside("cat", "/proc/sys/net/ipv4/conf/eth0.100/arp_notify")); got != "1" {
		t.Errorf("arp_notify is %s", got)
	}
	env.Command = cni.Del
	if _, err := b.serve(t.Context(), env); err != nil {
		t.Error(err)
	}
}

// TestIPv6Disabled: ADD without IPv6 addresses works where IPv6 is turned off.
func TestIPv6Disabled(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address))
	for _, ns := range b.Spaces() {
		ns.Command("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	}
	b.add()
	if out := b.inside("ip", "-6", "address"); out != "" {
		t.Errorf("the container has IPv6 addresses: %s", out)
	}
}

// TestKernelWithoutIPv6: on a kernel without IPv6, ADD fails only if IPAM returns IPv6 addresses
//
func TestKernelWithoutIPv6(t *testing.T) {
	testnet.Require(t, testnet.WithoutIPv6)
	newBench(t, pair{}, give(address)).add()
	b := newBench(t, pair{}, give(`"ips":[{"address":"fd00::2/64"}]`))
	if err := b.call(cni.Add); cni.CodeOf(err) != cni.CodeInvalidConfig || !strings.Contains(err.Error(), "this kernel has no IPv6") {
		t.Error(err)
	}
	if links := b.inside("ip", "-br", "link"); strings.Contains(links, "eth0") {
		t.Errorf("left %s", links)
	}
}

// TestWithoutIPAM: a network without addresses works with each notation of an empty ipam.
func TestWithoutIPAM(t *testing.T) {
	t.Parallel()
	for ipam, down := range map[string]bool{`null`: false, `{}`: false, `{"type":""}`: true} {
		t.Run(fmt.Sprintf("ipam %s, keepDown %t", ipam, down), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, nil)
			b.conf["ipam"], b.conf["keepDown"] = json.RawMessage(ipam), down
			r := b.add()
			if len(r.IPs)+len(r.Routes) > 0 {
				t.Errorf("result %+v", r)
			}
			if up := strings.Contains(b.inside("ip", "-br", "link", "show", "dev", "eth0"), ",UP"); up == down {
				t.Errorf("interface is up: %t", up)
			}
			for _, verb := range []cni.Command{cni.Check, cni.Status, cni.Del} {
				if err := b.call(verb); err != nil {
					t.Errorf("%s: %v", verb, err)
				}
			}
		})
	}
}

// TestRefusedBeforeAnythingIsDone: validation refuses these configurations before Make.
func TestRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		conf map[string]any
		says string
	}{
		{"no ipam in 0.2.0", map[string]any{"cniVersion": "0.2.0"}, "0.3.0"},
		{"no ipam in 0.1.0", map[string]any{"cniVersion": "0.1.0", "ipam": map[string]any{}}, "0.3.0"},
		{"path as ipam.type", map[string]any{"ipam": map[string]any{"type": "../pool"}}, "../pool"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{make: func(context.Context, *session) ([]cni.Interface, error) {
				t.Error("Make was called")
				return nil, nil
			}}, nil)
			for key, value := range row.conf {
				b.conf[key] = value
			}
			wantError(t, b.call(cni.Add), cni.CodeInvalidConfig, row.says)
		})
	}
}

func TestNamespacePath(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address))
	before := b.state()
	for path, code := range map[string]cni.Code{
		"/run/netns/absent": cni.CodeUnknownContainer,
		"/proc/self/ns/mnt": cni.CodeInvalidEnvironment,
		t.TempDir():         cni.CodeInvalidEnvironment,
	} {
		env := b.env(cni.Add)
		env.Netns = path
		_, err := b.serve(t.Context(), env)
		wantError(t, err, code, "CNI_NETNS", path)
	}
	b.unchanged(before)
	if b.asked() != "" {
		t.Errorf("IPAM was asked to %s", b.asked())
	}
}

// TestIPAMFails: DEL of IPAM undoes what its failed ADD did (PL-ADD-09, DLG-07, IPAM-08), and ADD
// keeps the code.
func TestIPAMFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		pool verbs
		code cni.Code
		says string
	}{
		{"error", verbs{cni.Add: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "pool is empty"))}, cni.CodeTryAgainLater, "pool is empty"},
		{"no address", give(`"ips":[]`), cni.CodeInvalidConfig, "missing IP config"},
		{"no result", verbs{cni.Add: invoke.Print("hello")}, cni.CodeDecodingFailure, "pool ADD"},
		{"DEL fails too", verbs{
			cni.Add: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "pool is empty")), cni.Del: invoke.Fail(cni.Errorf(5, "disk is full")),
		}, cni.CodeTryAgainLater, "disk is full"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, row.pool)
			before := b.state()
			wantError(t, b.call(cni.Add), row.code, row.says)
			b.unchanged(before)
			if b.asked() != "ADD DEL" {
				t.Errorf("IPAM was asked to %s, want ADD DEL", b.asked())
			}
		})
	}
}

// TestFailureAfterIPAM is R-48 and PL-ADD-10: the address is released last, when it is no longer in
// use.
func TestFailureAfterIPAM(t *testing.T) {
	t.Parallel()
	failed := errors.New("finish failed")
	var b *bench
	linkThere := true
	b = newBench(t, pair{finish: func(context.Context, *session, *cni.Result) error { return failed }}, verbs{
		cni.Add: invoke.Print(`{"cniVersion":"1.1.0",` + address + `}`),
		cni.Del: func(context.Context, invoke.Call) ([]byte, bool) {
			linkThere = strings.Contains(b.inside("ip", "-br", "address"), "10.0.0.2")
			return nil, true
		},
	})
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInternal, failed.Error())
	b.unchanged(before)
	if b.asked() != "ADD DEL" || linkThere {
		t.Errorf("IPAM was asked to %s; at its DEL the address was in use: %t", b.asked(), linkThere)
	}
}

// TestCancelled: a cancelled call rolls back its changes.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	b := newBench(t, pair{finish: func(_ context.Context, s *session, r *cni.Result) error {
		cancel(errors.New("the user pressed Ctrl-C"))
		return s.Masquerade(r.IPs)
	}}, give(address))
	before := b.state()
	_, err := b.serve(ctx, b.env(cni.Add))
	wantError(t, err, cni.CodeTryAgainLater, "Ctrl-C", "try again")
	b.unchanged(before)
	if b.asked() != "ADD DEL" {
		t.Errorf("IPAM was asked to %s, want ADD DEL", b.asked())
	}
}

// TestPanic: a call rolls back its changes even if the plugin panics.
func TestPanic(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{finish: func(context.Context, *session, *cni.Result) error { panic("boom") }}, give(address))
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInternal, "boom")
	b.unchanged(before)
	if b.asked() != "ADD DEL" {
		t.Errorf("IPAM was asked to %s, want ADD DEL", b.asked())
	}
}

// TestMakerWithoutInterface: ADD fails and rolls back if Make does not create CNI_IFNAME.
func TestMakerWithoutInterface(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{make: func(_ context.Context, s *session) ([]cni.Interface, error) {
		inside, _, err := s.Sandbox.Links.AddVeth(kernel.Veth{Name: "other", Host: s.Host, HostName: s.HostName(), Alias: s.Tag})
		return []cni.Interface{{Name: inside.Name, Sandbox: s.Netns}}, err
	}}, nil)
	before := b.state()
	wantError(t, b.call(cni.Add), cni.CodeInternal, "eth0")
	b.unchanged(before)
}
