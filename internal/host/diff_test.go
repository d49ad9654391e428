package host_test

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// text writes changes as lines.
func text(list []host.Change) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "%s %s %s %s: %s -> %s", c.Namespace, c.Action, c.Kind, c.Object, c.Before, c.After)
		if c.Derived {
			b.WriteString(" (derived)")
		}
		if c.Part != "" {
			b.WriteString(" (part of " + c.Part + ")")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestDiff compares states in which objects of each kind were added, changed and deleted, with other
// indexes, handles and times.
func TestDiff(t *testing.T) {
	t.Parallel()
	table := nftmsg.Table{Family: nftmsg.INet, Name: "tenon"}
	other := nftmsg.Table{Family: nftmsg.IPv4, Name: "other"}
	ports := nftmsg.ListedSet{Table: table, Name: "masq4", KeyType: uint32(nftmsg.TypeIPv4Addr), KeyLen: 4}
	old := &host.Host{Namespaces: []host.Namespace{{
		ID: "host",
		Links: []host.Link{{Index: 1, Name: "lo", MTU: 65536}, {Index: 2, Name: "cni0", Kind: "bridge", MTU: 1500, Bridge: &host.Bridge{}},
			{Index: 3, Name: "va", Kind: "veth", MTU: 1500, Master: 2, Flags: []string{"up", "lower-up"}, OperState: "up", Port: &host.Port{Learning: true, Flood: true}}},
		Addrs: []host.Addr{{Link: 2, Prefix: netip.MustParsePrefix("10.1.0.1/24"), Scope: "global"},
			{Link: 3, Prefix: netip.MustParsePrefix("fe80::1/64"), Scope: "link"}},
		Routes: []host.Route{{Type: "unicast", Dst: netip.MustParsePrefix("0.0.0.0/0"), Table: 254, Hops: []host.Hop{{Link: 2, Via: netip.MustParseAddr("10.1.0.9")}}},
			{Type: "local", Dst: netip.MustParsePrefix("10.1.0.1/32"), Table: 255, Protocol: 2, Hops: []host.Hop{{Link: 2}}}},
		Rules:      []host.Rule{{Family: "ipv4", Action: "lookup", Table: 254, Priority: 32766, Suppress: -1}},
		Neighbours: []host.Neighbour{{Link: 2, Addr: netip.MustParseAddr("10.1.0.7"), MAC: "02:00:00:00:00:07", State: "reachable"}},
		Settings: map[string]string{"net.ipv4.ip_forward": "0", "net.ipv4.conf.va.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0",
			"net.netfilter.nf_conntrack_count": "7"},
		Ruleset: &nftmsg.Ruleset{Generation: 3, Tables: []nftmsg.TableState{{Table: table}}, Sets: []nftmsg.ListedSet{ports}},
	}, {ID: "gone", Links: []host.Link{{Index: 1, Name: "lo"}}}}}

	added := ports
	added.Elements = []nftmsg.Element{{Key: []byte{10, 1, 0, 2}, Comment: "tenon:x"}}
	now := &host.Host{Namespaces: []host.Namespace{{
		ID: "host",
		Links: []host.Link{{Index: 1, Name: "lo", MTU: 65536}, {Index: 2, Name: "cni0", Kind: "bridge", MTU: 1400, Bridge: &host.Bridge{STP: true}},
			{Index: 9, Name: "vb", Kind: "veth", MTU: 1500, Alias: "tenon:x"}},
		Addrs: []host.Addr{{Link: 9, Prefix: netip.MustParsePrefix("10.1.0.1/24"), Scope: "global"},
			{Link: 2, Prefix: netip.MustParsePrefix("10.2.0.1/32"), Scope: "link", Flags: []string{"noprefixroute", "tentative"}}},
		Routes: []host.Route{{Type: "unicast", Dst: netip.MustParsePrefix("0.0.0.0/0"), Table: 254, MTU: 1300, Hops: []host.Hop{{Link: 2, Via: netip.MustParseAddr("10.1.0.9"), Flags: []string{"linkdown"}}}},
			{Type: "blackhole", Dst: netip.MustParsePrefix("::/0"), Table: 100, Metric: 5}},
		Rules: []host.Rule{{Family: "ipv6", Src: netip.MustParsePrefix("fd00::/8"), Mark: 1, Mask: 1, Action: "prohibit", Priority: 5, Invert: true, Suppress: -1},
			{Family: "ipv4", Action: "lookup", Priority: 1000, Protocol: unix.RTPROT_KERNEL, Suppress: -1, Other: true}},
		Neighbours: []host.Neighbour{{Link: 2, Addr: netip.MustParseAddr("10.1.0.7"), MAC: "02:00:00:00:00:08", State: "permanent"}},
		Settings: map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.conf.vb.rp_filter": "2", "net.ipv4.conf.default.rp_filter": "0",
			"net.ipv4.conf.vb.forwarding": "0", "net.ipv4.conf.default.forwarding": "0", "net.netfilter.nf_conntrack_count": "9"},
		Ruleset: &nftmsg.Ruleset{Generation: 9, Tables: []nftmsg.TableState{{Table: table}, {Table: other}},
			Chains: []nftmsg.ListedChain{{Table: other, Name: "c", Base: true, Type: "filter", Hook: 2, Drops: true}},
			Rules:  []nftmsg.ListedRule{{Table: other, Chain: "c", Handle: 4, Exprs: []nftmsg.Raw{{Name: "counter", Data: []byte{1}}}}},
			Sets:   []nftmsg.ListedSet{added}},
	}}}
	want := `host change link cni0: MTU 1500 -> MTU 1400, STP on
host add link vb:  -> veth, state down, MTU 1500, alias tenon:x
host delete link va: veth, state up, MTU 1500, master cni0 -> 
host add address 10.1.0.1/24 dev vb:  -> 
host add address 10.2.0.1/32 dev cni0:  -> scope link, noprefixroute
host delete address 10.1.0.1/24 dev cni0:  -> 
host delete address fe80::1/64 dev va: scope link ->  (derived)
host change route default via 10.1.0.9 dev cni0:  -> MTU 1300
host add route blackhole default (IPv6) table 100 metric 5:  -> 
host add policy rule 5: IPv6 not from fd00::/8 fwmark 0x1/0x1 prohibit:  -> 
host add policy rule 1000: from all (more conditions):  ->  (derived)
host delete policy rule 32766: from all lookup 254:  -> 
host add neighbour 10.1.0.7 dev cni0:  -> MAC 02:00:00:00:00:08
host add sysctl net.ipv4.conf.default.forwarding:  -> 0
host add sysctl net.ipv4.conf.vb.forwarding:  -> 0 (derived)
host change sysctl net.ipv4.conf.vb.rp_filter: 0 -> 2
host change sysctl net.ipv4.ip_forward: 0 -> 1
host delete sysctl net.ipv4.conf.va.rp_filter: 0 ->  (derived)
host add table ip other:  -> 
host add chain ip other c:  -> type filter, hook 2, priority 0, policy drop (part of ip other)
host add element inet tenon masq4 { 10.1.0.2 }:  -> comment tenon:x
host add rule ip other c counter:  ->  (part of ip other)
gone delete link lo: state down, MTU 0 -> 
`
	if diff := cmp.Diff(want, text(host.Diff(old, now))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, h := range []*host.Host{old, now} {
		if list := host.Diff(h, h); list != nil {
			t.Errorf("a state differs from itself:\n%s", text(list))
		}
	}
}

// TestLinkSettings compares the sysctls of links in messages with the files.
func TestLinkSettings(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces)
	n := testnet.New(t)
	n.Host.Batch("link add br0 type bridge")
	n.Host.Command("sysctl", "-qw", "net.ipv4.conf.br0.rp_filter=2", "net.ipv4.conf.br0.arp_notify=1",
		"net.ipv6.conf.br0.accept_ra=0", "net.ipv6.conf.br0.ndisc_notify=1", "net.ipv6.conf.br0.disable_policy=1",
		"net.ipv6.conf.br0.keep_addr_on_down=1", "net.ipv4.conf.br0.arp_accept=1")
	first := settings(t, n, host.Options{OnlyPaths: true, AllSettings: true})
	compared := 0
	n.Host.Do(func() {
		for name, value := range first {
			if !strings.Contains(name, ".br0.") {
				continue
			}
			compared++
			if got := sysctl(t, name); got != value {
				t.Errorf("%s: %s in the message, %s in the file", name, value, got)
			}
		}
	})
	if compared < 40 {
		t.Errorf("only %d settings of br0", compared)
	}
}

// TestSettingFiles compares the settings from files that stay open with those from new ones, after a
// change, and after a link has been replaced by one of its name.
func TestSettingFiles(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces)
	n := testnet.New(t, "c")
	c := n.Container("c")
	files := new(host.SettingFiles)
	defer files.Close()
	for _, change := range []string{
		":", "ip link add br0 type bridge", "sysctl -qw net.ipv4.conf.br0.arp_notify=1 net.ipv4.tcp_syncookies=0",
		"ip link delete br0; ip link add br0 type bridge; sysctl -qw net.ipv6.conf.br0.accept_ra=0",
		"ip link delete br0", "sysctl -qw 'net.ipv4.ip_local_reserved_ports=" + reserved() + "'",
	} {
		c.Command("sh", "-ec", change)
		o := host.Options{Paths: []string{c.Path()}, OnlyPaths: true, AllSettings: true}
		want := inContainer(t, n, o)
		o.Files = files
		if diff := cmp.Diff(want, inContainer(t, n, o)); diff != "" || len(want) < 200 {
			t.Errorf("%s: %d settings, -new +open:\n%s", change, len(want), diff)
		}
	}
}

// reserved returns a value that is longer than most.
func reserved() string {
	var ports []string
	for port := range 100 {
		ports = append(ports, strconv.Itoa(2*port+1))
	}
	return strings.Join(ports, ",")
}

// inContainer returns the settings of the container, the only other namespace.
func inContainer(t *testing.T, n *testnet.Net, o host.Options) map[string]string {
	t.Helper()
	h := readHost(t, n, o)
	if len(h.Namespaces) != 2 {
		t.Fatal(h)
	}
	return h.Namespaces[1].Settings
}

func settings(t *testing.T, n *testnet.Net, o host.Options) map[string]string {
	t.Helper()
	return readHost(t, n, o).Own().Settings
}

func readHost(t *testing.T, n *testnet.Net, o host.Options) (h *host.Host) {
	t.Helper()
	err := n.Host.Run(func() (err error) {
		h, err = host.Read(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func sysctl(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(b))
}
