package ptp_test

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// masq is a configuration with masquerading and options.
func masq(details string) string { return `,"ipMasq":true,"masquerade":{` + details + `}` }

// node is another node on the network, with its addresses.
type node struct {
	ns     *plugintest.Namespace
	v4, v6 string
}

// sees returns the addresses under which the other node sees a container.
func (n node) sees(t *testing.T, from *plugintest.Namespace) string {
	t.Helper()
	v4 := testnet.SourceSeen(t, from, n.ns, netip.MustParseAddr(n.v4))
	v6 := testnet.SourceSeen(t, from, n.ns, netip.MustParseAddr(n.v6))
	return v4.String() + " " + v6.String()
}

// TestMasqueradeDetails compares the source addresses that a node outside and a container of the
// same network see, before and after a flush of the ruleset and a repair.
func TestMasqueradeDetails(t *testing.T) {
	t.Parallel()
	const (
		container = "10.1.2.2 fd00:7::2"
		host      = "192.0.2.1 2001:db8::1"
		gateway   = "10.1.2.1 fd00:7::1"
		iptables  = `,"ipMasqBackend":"iptables"`
	)
	for _, row := range []struct {
		name, members    string
		outside, sibling string
	}{
		{"none", masq(``), host, container},
		{"IPv4 only", masq(`"v6":false`), "192.0.2.1 fd00:7::2", container},
		{"IPv6 only", masq(`"v4":false`), "10.1.2.2 2001:db8::1", container},
		{"both, explicitly", masq(`"v4":true,"v6":true`), host, container},
		{"a network excluded", masq(`"excludeCIDRs":["192.0.2.0/24"]`), "10.1.2.2 2001:db8::1",
			container},
		{"a host excluded, and a network that contains others",
			masq(`"excludeCIDRs":["192.0.2.2/32","2001:db8::/32","fd00::/8"]`),
			container, container},
		{"other networks excluded",
			masq(`"excludeCIDRs":["198.51.100.0/24","2001:db8:1::/48","192.0.2.3/32"]`),
			host, container},
		{"same subnet as well", masq(`"sameSubnet":true`), host, gateway},
		{"same subnet as well, in part", masq(`"sameSubnet":true,"excludeCIDRs":["10.1.2.0/30"]`),
			host, "10.1.2.2 fd00:7::1"},
		{"a source", masq(`"toSource":["192.0.2.50"]`), "192.0.2.50 2001:db8::1", container},
		{"a source for each family", masq(`"toSource":["2001:db8::50","192.0.2.50"]`),
			"192.0.2.50 2001:db8::50", container},
		{"a source, except towards an excluded network",
			masq(`"toSource":["192.0.2.50","2001:db8::50"],"excludeCIDRs":["192.0.2.0/24"]`),
			"10.1.2.2 2001:db8::50", container},
		{"a source, also in the same subnet", masq(`"toSource":["192.0.2.50"],"sameSubnet":true`),
			"192.0.2.50 2001:db8::1", "192.0.2.50 fd00:7::1"},
		{"no invalid packets", masq(`"dropInvalid":true`), host, container},
		{"everything",
			masq(`"v6":false,"toSource":["192.0.2.50"],"excludeCIDRs":["198.51.100.0/24"],"sameSubnet":true,"dropInvalid":true`), "192.0.2.50 fd00:7::2", "192.0.2.50 fd00:7::2"},
		{"by iptables, a network excluded",
			masq(`"excludeCIDRs":["192.0.2.0/24","2001:db8:1::/48"]`) + iptables,
			"10.1.2.2 2001:db8::1", container},
		{"by iptables, IPv4 only", masq(`"v6":false`) + iptables, "192.0.2.1 fd00:7::2", container},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members+ipamDual)
			outside := node{r.Uplink(), "192.0.2.2", "2001:db8::2"}
			r.Add("c")
			r.Add("sibling")
			sibling := node{r.Container("sibling"), "10.1.2.3", "fd00:7::3"}
			check := func(when string) {
				t.Helper()
				if got := outside.sees(t, r.Container("c")); got != row.outside {
					t.Errorf("%s, outside sees %s, want %s", when, got, row.outside)
				}
				if got := sibling.sees(t, r.Container("c")); got != row.sibling {
					t.Errorf("%s, the sibling sees %s, want %s", when, got, row.sibling)
				}
				r.Check("c")
			}
			check("after ADD")
			rules := r.Host.Command("nft", "-s", "list", "ruleset")
			r.Host.Command("nft", "flush", "ruleset")
			if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); err == nil {
				t.Error("CHECK succeeds after a flush")
			}
			for _, container := range []string{"c", "sibling"} {
				if err := r.Repair(container); err != nil {
					t.Error(err)
				}
			}
			check("after repair")
			if !strings.Contains(row.members, "iptables") {
				if diff := cmp.Diff(rules,
					r.Host.Command("nft", "-s", "list", "ruleset")); diff != "" {
					t.Errorf("rules (-before +repaired):\n%s", diff)
				}
			}
			r.Del("c")
			r.Must(r.Collect())
			if left := r.Host.Command("nft", "list", "ruleset"); strings.Contains(left, "tenon:") ||
				strings.Contains(left, "CNI-") {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

// TestTenants: a container of another network with the same address takes no packets from the first
// one, and gets its own when the first one is gone.
func TestTenants(t *testing.T) {
	t.Parallel()
	r := runtime(t, masq(``)+ipamDual)
	outside := node{r.Uplink(), "192.0.2.2", "2001:db8::2"}
	const host = "192.0.2.1 2001:db8::1"
	a := r.Add("first")
	r.Conf["name"] = "other"
	b := r.Add("second")
	if a.IPs[0].Address != b.IPs[0].Address {
		t.Fatalf("the addresses differ: %v, %v", a.IPs, b.IPs)
	}
	if got := outside.sees(t, r.Container("first")); got != host {
		t.Errorf("outside sees the first container as %s", got)
	}
	r.Check("second")
	r.Conf["name"] = "net"
	r.Check("first")
	r.Del("first")
	r.Conf["name"] = "other"
	r.Check("second")
	if got := outside.sees(t, r.Container("second")); got != host {
		t.Errorf("outside sees the second container as %s", got)
	}
	r.Del("second")
	if left := r.Host.Command("nft", "list", "ruleset"); strings.Contains(left, "tenon:") {
		t.Errorf("left:\n%s", left)
	}
}

// TestInvalidPackets: a packet of no known connection is not masqueraded (plugins#816). With
// dropInvalid it is dropped, except to networks that see the container's address anyway.
func TestInvalidPackets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, details string
		seen          bool
	}{
		{"escape", ``, true},
		{"are dropped", `"dropInvalid":true`, false},
		{"are dropped with a source", `"dropInvalid":true,"toSource":["192.0.2.50"]`, false},
		{"to an excluded network",
			`"dropInvalid":true,"excludeCIDRs":["192.0.2.0/24","2001:db8::/32"]`, true},
		{"of a family that is not masqueraded", `"dropInvalid":true,"v6":false`, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, masq(row.details)+ipamDual)
			outside := r.Uplink()
			r.Add("c")
			// valid packets pass, and neighbours are resolved
			node{outside, "192.0.2.2", "2001:db8::2"}.sees(t, r.Container("c"))
			if got := escapes(t, r.Container("c"), outside, "ip4:tcp",
				"192.0.2.2"); got != row.seen {
				t.Errorf("IPv4: escapes: %t", got)
			}
			seen6 := row.seen || strings.Contains(row.details, `"v6":false`)
			if got := escapes(t, r.Container("c"), outside, "ip6:tcp",
				"2001:db8::2"); got != seen6 {
				t.Errorf("IPv6: escapes: %t", got)
			}
			r.Check("c")
			if strings.Contains(row.details, "dropInvalid") {
				r.Host.Command("nft", "flush", "set", "inet", "tenon", "valid4")
				if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); err == nil {
					t.Error("CHECK succeeds")
				}
			}
		})
	}
}

// escapes sends a TCP segment with a wrong checksum, which the kernel assigns to no connection, and
// reports whether it arrives.
func escapes(t *testing.T, from, to *plugintest.Namespace, network, address string) bool {
	t.Helper()
	var server net.PacketConn
	var err error
	to.Do(func() { server, err = net.ListenPacket(network, address) })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	from.Do(func() {
		var c net.Conn
		if c, err = net.Dial(network, address); err != nil {
			return
		}
		defer c.Close()
		segment := make([]byte, 20)
		// ports, header length, ACK
		segment[0], segment[3], segment[12], segment[13] = 0x12, 0x50, 5<<4, 0x10
		segment[16] = 0xbd
		_, err = c.Write(segment)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, source, err := server.ReadFrom(make([]byte, 100))
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	if err == nil && !strings.HasPrefix(source.String(), "10.1.2.") &&
		!strings.HasPrefix(source.String(), "fd00:7::") {
		t.Errorf("the segment comes from %s, so this test proves nothing", source)
	}
	return err == nil
}

// TestMasqueradeContradictions: contradictions are refused with code 7, options that the backend
// lacks with code 2. The error names the key.
func TestMasqueradeContradictions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		code          cni.Code
		msg           string
	}{
		{"without ipMasq", `,"masquerade":{"sameSubnet":true}`, 7,
			"masquerade has no effect without ipMasq"},
		{"ipMasq is off", `,"ipMasq":false,"masquerade":{}`, 7,
			"masquerade has no effect without ipMasq"},
		{"no family is left", masq(`"v4":false,"v6":false`), 7, "v4 and v6 are both off"},
		{"not a network", masq(`"excludeCIDRs":["10.0.0.1"]`), 6, "10.0.0.1"},
		{"an empty network", masq(`"excludeCIDRs":[""]`), 7, "masquerade.excludeCIDRs"},
		{"a mapped network", masq(`"excludeCIDRs":["::ffff:10.0.0.0/104"]`), 7,
			"masquerade.excludeCIDRs"},
		{"an empty source", masq(`"toSource":[""]`), 7, "masquerade.toSource"},
		{"not an address", masq(`"toSource":["eth0"]`), 6, "eth0"},
		{"a multicast group as source", masq(`"toSource":["224.0.0.1"]`), 7, "masquerade.toSource"},
		{"a source on a link", masq(`"toSource":["fe80::1%eth0"]`), 7, "masquerade.toSource"},
		{"two sources", masq(`"toSource":["192.0.2.1","192.0.2.2"]`), 7,
			"192.0.2.2 is the second of its family"},
		{"a source of a family that is off", masq(`"v4":false,"toSource":["192.0.2.1"]`), 7,
			"family of 192.0.2.1"},
		{"iptables, same subnet", masq(`"sameSubnet":true`) + `,"ipMasqBackend":"iptables"`, 2,
			"masquerade.sameSubnet"},
		{"iptables, source", masq(`"toSource":["192.0.2.1"]`) + `,"ipMasqBackend":"iptables"`, 2,
			"masquerade.toSource"},
		{"iptables, invalid packets", masq(`"dropInvalid":true`) + `,"ipMasqBackend":"iptables"`, 2,
			"masquerade.dropInvalid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members+ipamDual)
			r.Container("c")
			before := r.State()
			if err := r.Refused(r.Request(cni.Add, "c"), row.code); err != nil &&
				!strings.Contains(err.Error(), row.msg) {
				t.Errorf("%v lacks %q", err, row.msg)
			}
			r.Unchanged(before)
			r.Del("c") // DEL works nevertheless
		})
	}
}
