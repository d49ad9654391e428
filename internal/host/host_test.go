package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// read reads the host of a test and its containers.
func read(t *testing.T, n *testnet.Net, containers ...string) *host.Host {
	t.Helper()
	o := host.Options{OnlyPaths: true}
	for _, c := range containers {
		o.Paths = append(o.Paths, n.Container(c).Path())
	}
	var h *host.Host
	err := n.Host.Run(func() (err error) {
		h, err = host.Read(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.Skipped != nil {
		t.Errorf("skipped %v", h.Skipped)
	}
	return h
}

// TestRead compares what Read returns with the commands that made it, and checks that a value
// survives JSON and that reading changes nothing.
func TestRead(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "web")
	web := n.Container("web")
	n.Host.Wire("up0")
	n.Host.Batch("link add br0 type bridge stp_state 0 forward_delay 400",
		"link set br0 up",
		"addr add 10.7.0.1/24 dev br0",
		"addr add 2001:db8::1/64 dev br0 nodad",
		"link set up0 mtu 1400",
		"link property add dev up0 altname uplink",
		"addr add 192.0.2.1 peer 192.0.2.2/32 dev up0",
		"link add va type veth peer name eth0 netns "+web.Path(),
		"link set va master br0 up",
		"link set va alias web")
	web.Batch("link set eth0 up")
	n.Host.Batch("route add default via 192.0.2.2 dev up0 onlink",
		"route add blackhole 203.0.113.0/24 metric 9",
		"route add 198.51.100.0/24 table 100 nexthop via 10.7.0.8 weight 2 nexthop via 10.7.0.9",
		"route add 10.9.0.0/16 via inet6 2001:db8::9 dev br0 mtu 1300",
		"rule add from 10.7.0.0/24 iif br0 fwmark 0x10/0xf0 lookup 100 priority 50",
		"rule add not to 10.0.0.0/8 unreachable priority 60",
		"neigh add 10.7.0.9 lladdr 02:00:00:00:00:09 dev br0")
	n.Host.Command("bridge", "link", "set", "dev", "va", "hairpin", "on")
	n.Host.Command("bridge", "fdb", "add", "02:00:00:00:00:07", "dev", "va", "master", "static")
	n.Host.Command("sysctl", "-qw", "net.ipv4.conf.br0.rp_filter=2")

	before := testnet.Snapshot(t, n.Spaces())
	h := read(t, n, "web")
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("reading has changed:\n%s", diff)
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var again *host.Host
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if second, err := json.Marshal(again); err != nil || string(second) != string(text) {
		t.Errorf("JSON changes: %v\n%s\n%s", err, text, second)
	}

	own := again.Own()
	va := own.LinkByName("va")
	other, eth0 := again.Peer(own, va)
	if eth0 == nil || eth0.Name != "eth0" || !slices.Contains(other.Paths, web.Path()) {
		t.Errorf("the peer of va is %+v", eth0)
	}
	if back, l := again.Peer(other, eth0); back != own || l == nil || l.Name != "va" {
		t.Errorf("the peer of eth0 is %+v", l)
	}
	up0 := own.LinkByName("uplink")
	for _, row := range []struct {
		what      string
		got, want any
	}{
		{"kind, alias, master", []any{va.Kind, va.Alias, own.Link(va.Master).Name, va.Up(), va.Running()},
			[]any{"veth", "web", "br0", true, true}},
		// Kernels with VLAN filtering add VLAN 1 to each port.
		{"port", *va.Port, host.Port{State: "forwarding", Hairpin: true, Learning: true, Flood: true,
			VLANs: va.Port.VLANs}},
		{"bridge", own.LinkByName("br0").Bridge.ForwardDelay, 400},
		{"uplink", []any{up0.Name, up0.MTU}, []any{"up0", 1400}},
		{"holder", own.Holder(netip.MustParseAddr("10.7.0.1")).Name, "br0"},
		{"address with peer", own.Of(up0.Index)[0], host.Addr{Link: up0.Index,
			Prefix: netip.MustParsePrefix("192.0.2.1/32"), Peer: netip.MustParsePrefix("192.0.2.2/32"),
			Scope: "global", Flags: []string{"permanent"}}},
		{"setting", own.Settings["net.ipv4.conf.br0.rp_filter"], "2"},
		{"neighbour", neighbour(own, "10.7.0.9"), "02:00:00:00:00:09 permanent"},
		{"forwarding", forwarding(own, "02:00:00:00:00:07"), "va static true local false"},
	} {
		if diff := cmp.Diff(row.want, row.got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.what, diff)
		}
	}
	for dst, want := range map[string]string{
		"0.0.0.0/0":       "unicast table 254 metric 0 mtu 0 via 192.0.2.2 up0 [onlink]",
		"203.0.113.0/24":  "blackhole table 254 metric 9 mtu 0",
		"198.51.100.0/24": "unicast table 100 metric 0 mtu 0 via 10.7.0.8 br0 [] via 10.7.0.9 br0 []",
		"10.9.0.0/16":     "unicast table 254 metric 0 mtu 1300 via 2001:db8::9 br0 []",
	} {
		if got := route(own, dst); got != want {
			t.Errorf("route %s: %s, want %s", dst, got, want)
		}
	}
	rules := own.Rules[1:3]
	want := []host.Rule{
		{Family: "ipv4", Priority: 50, Src: netip.MustParsePrefix("10.7.0.0/24"), IIF: "br0", Mark: 0x10,
			Mask: 0xf0, Action: "lookup", Table: 100, Suppress: -1},
		{Family: "ipv4", Priority: 60, Dst: netip.MustParsePrefix("10.0.0.0/8"), Invert: true,
			Action: "unreachable", Suppress: -1},
	}
	if !slices.Equal(rules, want) {
		t.Errorf("rules %+v, want %+v", rules, want)
	}
}

func route(n *host.Namespace, dst string) (text string) {
	for _, r := range n.Routes {
		if r.Dst.String() != dst {
			continue
		}
		text = fmt.Sprintf("%s table %d metric %d mtu %d", r.Type, r.Table, r.Metric, r.MTU)
		for _, h := range r.Hops {
			text += fmt.Sprintf(" via %s %s %v", h.Via, n.Link(h.Link).Name, h.Flags)
		}
	}
	return text
}

func neighbour(n *host.Namespace, addr string) string {
	for _, x := range n.Neighbours {
		if x.Addr.String() == addr {
			return x.MAC + " " + x.State
		}
	}
	return ""
}

func forwarding(n *host.Namespace, mac string) string {
	for _, f := range n.Forwarding {
		if f.MAC == mac {
			return fmt.Sprintf("%s static %t local %t", n.Link(f.Link).Name, f.Static, f.Local)
		}
	}
	return ""
}

// TestListeners finds sockets that accept connections or datagrams in the container that has them,
// and only when they are asked for.
func TestListeners(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "web")
	web := n.Container("web")
	web.Command("ip", "link", "set", "lo", "up")
	var want []host.Listener
	web.Do(func() {
		for _, address := range []string{"127.0.0.1:80", "[::1]:8080"} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			want = append(want, host.Listener{Protocol: "tcp", Addr: netip.MustParseAddrPort(address)})
		}
		for _, address := range []string{"127.0.0.1:53", "[::1]:5353"} {
			l, err := net.ListenPacket("udp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			want = append(want, host.Listener{Protocol: "udp", Addr: netip.MustParseAddrPort(address)})
		}
	})
	h := read(t, n, "web")
	for i, x := range h.Namespaces {
		if x.Listeners != nil {
			t.Errorf("namespace %d has listeners %v before they are read", i, x.Listeners)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	n.Host.Do(func() {
		if unread := h.ReadListeners(ended); unread != 2 {
			t.Errorf("%d of 2 namespaces not read without time", unread)
		}
		if unread := h.ReadListeners(t.Context()); unread != 0 {
			t.Errorf("%d namespaces not read", unread)
		}
	})
	if got := h.Namespaces[1].Listeners; !slices.Equal(got, want) {
		t.Errorf("listeners %v, want %v", got, want)
	}
	if got := h.Own().Listeners; got == nil || len(got) > 0 {
		t.Errorf("listeners of the host: %#v", got)
	}
	gone := host.Namespace{ID: "4:1", Paths: []string{n.Container("web").Path()}}
	if err := gone.ReadListeners(); !errors.Is(err, fs.ErrNotExist) || gone.Listeners != nil {
		t.Errorf("a namespace that no longer exists: %v, %v", err, gone.Listeners)
	}
}

// TestPartial: a caller without privileges learns which parts are missing. Without the option, Read
// fails.
func TestPartial(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	n := testnet.New(t)
	n.Host.Do(func() { // on a thread that ends afterwards
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			t.Error(err)
			return
		}
		o := host.Options{OnlyPaths: true}
		if _, err := host.Read(t.Context(), o); err == nil {
			t.Error("no error without privileges")
		}
		o.Partial = true
		h, err := host.Read(t.Context(), o)
		if err != nil {
			t.Error(err)
			return
		}
		var missing []string
		for _, m := range h.Own().Missing {
			missing = append(missing, m.What)
		}
		if diff := cmp.Diff([]string{"policies of IPsec", "nftables"}, missing); diff != "" ||
			h.Own().Ruleset == nil {
			t.Errorf("missing (-want +got)\n%s", diff)
		}
	})
}

// TestBrief reads less, and the rest is the same.
func TestBrief(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "web")
	n.Host.Batch("link add va type veth peer name eth0 netns "+n.Container("web").Path(), "addr add 10.7.0.1/24 dev va")
	o := host.Options{OnlyPaths: true, Paths: []string{n.Container("web").Path()}}
	var full, brief *host.Host
	err := n.Host.Run(func() (err error) {
		if full, err = host.Read(t.Context(), o); err != nil {
			return err
		}
		o.Brief = true
		brief, err = host.Read(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range full.Namespaces {
		x := &full.Namespaces[i]
		x.Neighbours, x.Forwarding = nil, nil
		if i > 0 {
			x.Rules, x.Ruleset, x.Settings = nil, new(nftmsg.Ruleset), nil
			continue
		}
		for name := range x.Settings {
			if strings.Contains(name, ".va.") || strings.Contains(name, ".lo.") {
				delete(x.Settings, name)
			}
		}
	}
	full.Time = brief.Time
	texts := make([]string, 2)
	for i, h := range []*host.Host{full, brief} {
		text, err := json.MarshalIndent(h.Namespaces, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("(-full +brief):\n%s", diff)
	}
}
