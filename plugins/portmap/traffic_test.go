package portmap_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

var backends = []string{"nftables", "iptables"}

// forBackends runs a test with each backend.
func forBackends(t *testing.T, test func(t *testing.T, backend string)) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Tool("iptables-restore"))
			test(t, backend)
		})
	}
}

func withBackend(backend string) string { return `,"backend":"` + backend + `"` }

// TestWhoReaches: all clients reach the container over both protocols and families, with either
// backend, and the container sees the same addresses. The exception is ::1, which stays with
// services of the host. Clients connect directly, via an address of the host, via 127.0.0.1, and
// from the container itself.
func TestWhoReaches(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		addrs := h.attach("self", 0)
		h.attach("sibling", 0)
		h.attach("elsewhere", 1)
		serve(t, h.Container("self"), "self", "", 80)
		serve(t, h.Host, "host", "::1", 8080)
		for _, a := range addrs {
			answers(t, h.Host, net.JoinHostPort(a.String(), "80"), "self") // direct
		}
		h.add("self", both(8080, 80, ""))
		loopback6 := "host"
		if backend == "iptables" {
			// upstream's chains forward to an address that packets from ::1 cannot reach
			loopback6 = ""
		}
		gateway := map[bool]string{true: "10.1.0.1", false: "fd00:1::1"}
		for _, row := range []struct {
			client, at string
			answer     string
			seenAs     string
		}{
			{"self", "192.0.2.1", "self", gateway[true]},
			{"self", "2001:db8::1", "self", gateway[false]},
			{"sibling", "192.0.2.1", "self", gateway[true]},
			{"sibling", "2001:db8::1", "self", gateway[false]},
			{"sibling", "10.1.0.1", "self", gateway[true]},
			{"sibling", "fd00:1::1", "self", gateway[false]},
			{"elsewhere", "192.0.2.1", "self", gateway[true]}, // its own network is masqueraded
			{"elsewhere", "2001:db8::1", "self", gateway[false]},
			{"elsewhere", "10.1.1.1", "self", gateway[true]},
			{"host", "192.0.2.1", "self", "192.0.2.1"},
			{"host", "2001:db8::1", "self", "2001:db8::1"},
			{"host", "127.0.0.1", "self", gateway[true]},
			{"host", "::1", loopback6, "::1"},
			{"outside", "192.0.2.1", "self", "192.0.2.2"},
			{"outside", "2001:db8::1", "self", "2001:db8::2"},
		} {
			from := h.Host
			if row.client != "host" {
				from = h.Container(row.client)
			}
			for _, network := range []string{"tcp", "udp"} {
				name, client, err := ask(from, network, net.JoinHostPort(row.at, "8080"),
					patience(row.answer))
				if name != row.answer {
					t.Errorf("%s from %s to %s: %q answers (%v), want %q", network, row.client,
						row.at, name, err, row.answer)
				}
				if name != "" && client.String() != row.seenAs {
					t.Errorf("%s from %s to %s: seen as %s, want %q", network, row.client, row.at,
						client, row.seenAs)
				}
			}
		}
	})
}

// TestHostIP: a mapping for one address does not affect other addresses, and a mapping for all
// addresses of a family does not affect the other family.
func TestHostIP(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.Host.Command("ip", "address", "add", "192.0.2.9/24", "dev", "uplink")
		h.attach("c", 0)
		serve(t, h.Container("c"), "c", "", 80)
		serve(t, h.Host, "host", "", 8080)
		for _, row := range []struct {
			hostIP string
			at     map[string]string
		}{
			{"192.0.2.9", map[string]string{
				"192.0.2.9": "c", "192.0.2.1": "host", "2001:db8::1": "host",
			}},
			{"2001:db8::1", map[string]string{"192.0.2.1": "host", "2001:db8::1": "c"}},
			{"0.0.0.0", map[string]string{
				"192.0.2.9": "c", "192.0.2.1": "c", "2001:db8::1": "host",
			}},
			{"::", map[string]string{"192.0.2.1": "host", "2001:db8::1": "c"}},
		} {
			ports := both(8080, 80, `,"hostIP":"`+row.hostIP+`"`)
			h.add("c", ports)
			for address, want := range row.at {
				answers(t, h.lan, net.JoinHostPort(address, "8080"), want)
			}
			h.del("c", ports)
		}
		h.add("c", both(8080, 80, `,"hostIP":"127.0.0.1"`))
		answers(t, h.lan, "192.0.2.1:8080", "host")
		answers(t, h.Host, "127.0.0.1:8080", "c")
	})
}

// TestOthersTraffic: packets to other destinations with the same port number reach them
// (CVE-2025-67499, CVE-2019-9946): a routed address, a container, and an address of the host that
// the NAT of another service translates.
func TestOthersTraffic(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		c := h.attach("c", 0)
		other := h.attach("other", 1)
		serve(t, h.Container("c"), "c", "", 80)
		serve(t, h.Container("other"), "other", "", 8080)
		h.lan.Command("ip", "address", "add", "198.51.100.1/32", "dev", "lo")
		serve(t, h.lan, "outside", "198.51.100.1", 8080)
		h.Host.Command("ip", "route", "add", "198.51.100.1", "via", "192.0.2.2")
		// The service NAT of kube-proxy leads 192.0.2.50, an address of the host, to another
		// container.
		h.Host.Command("ip", "address", "add", "192.0.2.50/24", "dev", "uplink")
		h.Host.Command("nft", `add table ip kube-proxy
			add chain ip kube-proxy services { type nat hook prerouting priority dstnat; }
			add rule ip kube-proxy services ip daddr 192.0.2.50 meta l4proto { tcp, udp } th dport 8080 dnat to `+other[0].String()+`:8080`)
		h.add("c", both(8080, 80, ""))
		answers(t, h.Container("other"), "198.51.100.1:8080", "outside")
		answers(t, h.Host, "198.51.100.1:8080", "outside")
		answers(t, h.Container("c"), net.JoinHostPort(other[0].String(), "8080"), "other")
		answers(t, h.Container("c"), net.JoinHostPort(other[1].String(), "8080"), "other")
		answers(t, h.Container("other"), net.JoinHostPort(c[0].String(), "80"), "c")
		answers(t, h.lan, "192.0.2.1:8080", "c")
		if backend == "nftables" { // with iptables the chains are where upstream puts them
			answers(t, h.lan, "192.0.2.50:8080", "other")
		}
	})
}

// TestLoopbackServices: other hosts cannot reach services on 127.0.0.1, although route_localnet is
// set on the link to the container, and on no other link (CVE-2020-8558).
func TestLoopbackServices(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.attach("c", 0)
		serve(t, h.Host, "host", "127.0.0.1", 9999)
		h.add("c", both(8080, 80, ""))
		for _, row := range []struct{ link, want string }{{"br0", "1"}, {"uplink", "0"},
			{"all", "0"}, {"default", "0"}} {
			if got := strings.TrimSpace(h.Host.Command("sysctl", "-n",
				"net.ipv4.conf."+row.link+".route_localnet")); got != row.want {
				t.Errorf("route_localnet of %s is %s, want %s", row.link, got, row.want)
			}
		}
		// as if another plugin had set it
		h.Host.Command("sysctl", "-qw", "net.ipv4.conf.uplink.route_localnet=1")
		for _, from := range []struct {
			ns  *testnet.Namespace
			via string
		}{{h.Container("c"), "10.1.0.1"}, {h.lan, "192.0.2.1"}} {
			// Remove the neighbour's own route to 127.0.0.0/8.
			from.ns.Command("ip", "link", "set", "lo", "down")
			from.ns.Command("sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1",
				"net.ipv4.conf.eth0.route_localnet=1")
			from.ns.Command("ip", "route", "add", "127.0.0.0/8", "via", from.via, "dev", "eth0")
			answers(t, from.ns, "127.0.0.1:9999", "")
		}
		answers(t, h.Host, "127.0.0.1:9999", "host")
		// The guard drops the packets.
		h.Host.Command("nft", "flush", "chain", "inet", "tenon", "hostports_loopback")
		answers(t, h.lan, "127.0.0.1:9999", "host")
	})
}

// TestNoLoopbackAsked: without mappings for 127.0.0.1 route_localnet stays off (CVE-2020-8558).
func TestNoLoopbackAsked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, members, ports string }{
		{"hostIP", "", both(8080, 80, `,"hostIP":"192.0.2.1"`)},
		{"snat off", `,"snat":false`, both(8080, 80, "")},
		{"IPv6 only", "", both(8080, 80, `,"hostIP":"::"`)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, row.members)
			h.attach("c", 0)
			h.add("c", row.ports)
			if got := strings.TrimSpace(h.Host.Command("sysctl", "-n",
				"net.ipv4.conf.br0.route_localnet")); got != "0" {
				t.Errorf("route_localnet is %s", got)
			}
		})
	}
}

// TestMasqAll: all clients appear with the address of the host; without snat with their own.
func TestMasqAll(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		for members, want := range map[string][2]string{
			`,"masqAll":true`:              {"10.1.0.1", "fd00:1::1"},
			`,"snat":false`:                {"192.0.2.2", "2001:db8::2"},
			`,"masqAll":true,"snat":false`: {"192.0.2.2", "2001:db8::2"},
		} {
			h := newHost(t, withBackend(backend)+members)
			h.attach("c", 0)
			serve(t, h.Container("c"), "c", "", 80)
			h.add("c", both(8080, 80, ""))
			for i, address := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
				if _, client, err := ask(h.lan, "tcp", address, inTime); err != nil ||
					client != netip.MustParseAddr(want[i]) {
					t.Errorf("%s: seen as %s (%v), want %s", members, client, err, want[i])
				}
			}
		}
	})
}

// TestSelfWithoutHairpinMode: without br_netfilter the bridge needs no setting.
func TestSelfWithoutHairpinMode(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.attach("self", 0)
		h.Host.Command("bridge", "link", "set", "dev", h.ports(0)[0], "hairpin", "off")
		if h.Host.Try("sysctl", "-q", "net.bridge.bridge-nf-call-iptables") == nil {
			h.Host.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0",
				"net.bridge.bridge-nf-call-ip6tables=0")
		}
		serve(t, h.Container("self"), "self", "", 80)
		h.add("self", both(8080, 80, ""))
		for _, address := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
			answers(t, h.Container("self"), address, "self")
		}
	})
}
