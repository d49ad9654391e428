package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestGatewayAddress: a gateway address for a bridge that has another address. A failed ADD
// releases the lease.
func TestGatewayAddress(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, has, ipam string
		force           bool
		want            []string // nil: refused
	}{
		{"the same", "10.1.2.1/24", ipam4, false, []string{"10.1.2.1/24"}},
		{"any other IPv4 address conflicts", "10.0.0.1/8", ipam4, false, nil},
		{"even one in the same network", "10.1.2.9/24", ipam4, false, nil},
		{"another prefix length", "10.1.2.1/16", ipam4, false, nil},
		{"replaced by force", "10.0.0.1/8", ipam4, true, []string{"10.1.2.1/24"}},
		{"IPv6 networks that overlap", "fd00:1::5/48", ipam6, false, nil},
		{"IPv6 networks that overlap, by force", "fd00:1::5/48", ipam6, true,
			[]string{"fd00:1::1/64"}},
		{"IPv6 networks that do not overlap", "fd00:7::1/64", ipam6, false, []string{
			"fd00:1::1/64", "fd00:7::1/64",
		}},
		{"force keeps addresses that do not overlap", "fd00:7::1/64", ipam6, true, []string{
			"fd00:1::1/64", "fd00:7::1/64",
		}},
		{"other family", "fd00:7::1/64", ipam4, false, []string{"10.1.2.1/24", "fd00:7::1/64"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, fmt.Sprintf(`,"isGateway":true,"forceAddress":%t%s`,
				row.force, row.ipam))
			r.Host.Command("ip", "link", "add", "br0", "up", "type", "bridge")
			r.Host.Command("ip", "address", "add", row.has, "dev", "br0", "nodad")
			if row.want == nil {
				plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig),
					`"br0" already has an IP address different from `)
				if reserved := reservations(t, r); reserved != nil {
					t.Errorf("still reserved: %v", reserved)
				}
				row.want = []string{row.has}
			} else {
				r.Add("c")
				r.Check("c")
			}
			if diff := cmp.Diff(row.want, addresses(r.Host, "br0")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// reservations lists the addresses that host-local has reserved.
func reservations(t *testing.T, r *plugintest.Runtime) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(r.Dir, "net", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, name := range names {
		if a, err := netip.ParseAddr(filepath.Base(name)); err == nil {
			addresses = append(addresses, a.String())
		}
	}
	return addresses
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, members, v4, v6 string }{
		{"no gateway", ipamDual, "0", "0"},
		{"gateway without addresses", gateway, "0", "0"},
		{"IPv4", gateway + ipam4, "1", "0"},
		{"IPv6", gateway + ipam6, "0", "1"},
		{"both", gateway + ipamDual, "1", "1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Add("c")
			r.Del("c") // never disabled: other programs may need it
			for key, want := range map[string]string{
				"net/ipv4/ip_forward": row.v4, "net/ipv6/conf/all/forwarding": row.v6,
			} {
				if got := setting(t, r.Host, key); got != want {
					t.Errorf("%s is %s, want %s", key, got, want)
				}
			}
		})
	}
}

func setting(t *testing.T, ns *plugintest.Namespace, key string) string {
	t.Helper()
	var value []byte
	var err error
	ns.Do(func() { value, err = os.ReadFile("/proc/sys/" + key) })
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// TestMACOfTheBridge: neighbours cache the gateway's MAC address, so it must not follow the ports.
// This applies to an administrator's bridge as well.
func TestMACOfTheBridge(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*plugintest.Runtime){
		"bridge created by ADD": func(*plugintest.Runtime) {},
		"existing bridge": func(r *plugintest.Runtime) {
			r.Host.Command("ip", "link", "add", "br0", "type", "bridge")
		},
		"bridge without its last port": func(r *plugintest.Runtime) {
			r.Host.Command("ip", "link", "add", "br0", "up", "type", "bridge")
			r.Host.Command("ip", "link", "add", "port", "up", "master", "br0", "type", "veth",
				"peer", "name", "peer")
			r.Host.Command("ip", "link", "delete", "port")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+ipam4)
			prepare(r)
			var results []*cni.Result
			for i := range 5 {
				q := r.Request(cni.Add, fmt.Sprintf("c-%d", i))
				q.Conf["runtimeConfig"] = map[string]any{"mac": fmt.Sprintf("02:00:00:00:00:0%d",
					9-i)}
				result, err := cni.DecodeResult(r.Must(q), 0)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, result)
				if i == 2 {
					r.Del("c-0")
				}
			}
			br := show(t, r.Host, "br0").Address
			for i, result := range results {
				if got := result.Interfaces[0].MAC; got != br {
					t.Errorf("ADD %d found the bridge with MAC %s, now it has %s", i, got, br)
				}
				if i > 0 && show(t, r.Host, result.Interfaces[1].Name).Address == br {
					t.Errorf("the bridge has the MAC of port %d", i)
				}
			}
		})
	}
}

// TestMasqueradeElements: masquerading needs one element per address, which DEL removes; without
// ipMasq there is none.
func TestMasqueradeElements(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+`,"ipMasq":true,"ipMasqBackend":"nftables"`+ipamDual)
	r.Add("c")
	r.Add("d")
	r.Del("c")
	delete(r.Conf, "ipMasq")
	r.Add("e")
	var got []string
	for _, set := range []string{"masq4", "masq6"} {
		var list struct {
			Nftables []struct {
				Set struct {
					Elem []struct {
						Elem struct{ Val, Comment string }
					}
				}
			}
		}
		out := r.Host.Command("nft", "-j", "list", "set", "inet", "tenon", set)
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Nftables {
			for _, e := range n.Set.Elem {
				got = append(got, e.Elem.Val+" "+e.Elem.Comment)
			}
		}
	}
	tag := cni.Attachment{Network: "net", Container: "d", IfName: "eth0"}.Tag()
	if diff := cmp.Diff([]string{"10.1.2.3 " + tag, "fd00:1::3 " + tag}, got); diff != "" {
		t.Error(diff)
	}
}

// TestAddressInTheHandsOfAnother: a late DEL keeps the rules of the attachment that now has the
// address.
func TestAddressInTheHandsOfAnother(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
	r.Add("old")
	if err := os.RemoveAll(filepath.Join(r.Dir, "net")); err != nil {
		t.Fatal(err)
	}
	if got := r.Add("new").IPs[0].Address.String(); got != "10.1.2.2/24" {
		t.Fatalf("address is %s, want the address of the old container", got)
	}
	r.Del("old")
	r.Check("new")
}

// TestMultipleGateways: two subnets of IPv4 share a bridge if multipleGateways is set, and their
// containers reach each other through it. Overlapping subnets conflict nevertheless.
func TestMultipleGateways(t *testing.T) {
	t.Parallel()
	const gateways = `,"isDefaultGateway":true,"multipleGateways":true`
	r := runtime(t, gateways+ipam4)
	subnet := func(s string) {
		r.Conf["ipam"].(map[string]any)["ranges"] = []any{[]any{map[string]any{"subnet": s}}}
	}
	first := r.Add("c").IPs[0].Address.Addr()
	r.Check("c")
	subnet("10.1.3.0/24")
	r.Conf["multipleGateways"] = false
	e := r.Refused(r.Request(cni.Add, "d"), cni.CodeInvalidConfig)
	plugintest.Says(t, e, "set forceAddress to replace it, or multipleGateways to keep it")
	r.Conf["multipleGateways"] = true
	second := r.Add("d").IPs[0].Address.Addr()
	r.Check("d")
	testnet.Reaches(t, r.Container("c"), second, true)
	testnet.Reaches(t, r.Container("d"), first, true)
	subnet("10.1.0.0/16")
	e = r.Refused(r.Request(cni.Add, "f"), cni.CodeInvalidConfig)
	plugintest.Says(t, e, "already has an IP address different from 10.1.0.1/16")
	want := []string{"10.1.2.1/24", "10.1.3.1/24"}
	if diff := cmp.Diff(want, addresses(r.Host, "br0")); diff != "" {
		t.Error(diff)
	}
	r.Conf["forceAddress"] = true
	subnet("10.1.2.0/25")
	r.Add("g")
	want = []string{"10.1.2.1/25", "10.1.3.1/24"}
	if diff := cmp.Diff(want, addresses(r.Host, "br0")); diff != "" {
		t.Errorf("forceAddress must replace only the overlapping address:\n%s", diff)
	}
}
