package routes_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
)

// TestProblems: peers that contradict others are left out, and named. The others are programmed.
func TestProblems(t *testing.T) {
	t.Parallel()
	change := func(p routes.Peer, f func(*routes.Peer)) routes.Peer {
		f(&p)
		return p
	}
	for _, row := range []struct {
		name  string
		mode  routes.Mode
		peers []routes.Peer
		want  string   // in the problems
		dsts  []string // in the routes, with their next hops
	}{
		{"MAC address of another node", routes.ModeVXLAN, []routes.Peer{distant(3),
			change(distant(4), func(p *routes.Peer) { p.MAC = distant(3).MAC })},
			`node "n004": MAC address ` + distant(3).MAC.String() + ` is in use by node "n003"`,
			[]string{"10.64.3.0/26 198.51.100.3", "fd00:64:0:3::/122 link-local"}},
		{"own MAC address", routes.ModeVXLAN, []routes.Peer{
			change(distant(4), func(p *routes.Peer) { p.MAC = peer(1).MAC })},
			"is in use by this node", nil},
		{"multicast MAC address", routes.ModeVXLAN, []routes.Peer{
			change(distant(4), func(p *routes.Peer) { p.MAC = net.HardwareAddr{1, 2, 3, 4, 5, 6} })},
			"not the one of an interface", nil},
		{"address of another node", routes.ModeVXLAN, []routes.Peer{distant(3),
			change(distant(4), func(p *routes.Peer) { p.Addrs = distant(3).Addrs })},
			`node "n004": address 198.51.100.3 is in use by node "n003"`,
			[]string{"10.64.3.0/26 198.51.100.3", "fd00:64:0:3::/122 link-local"}},
		{"own address", routes.ModeVXLAN, []routes.Peer{nearby(1)}, "in use by this node", nil},
		{"link-local address", routes.ModeVXLAN, []routes.Peer{
			change(distant(4), func(p *routes.Peer) { p.Addrs = []netip.Addr{netip.MustParseAddr("fe80::4")} })},
			"fe80::4 cannot identify a node", nil},
		{"same name", routes.ModeVXLAN, []routes.Peer{distant(3),
			change(distant(4), func(p *routes.Peer) { p.Name = "n003" })}, "the name occurs twice",
			[]string{"10.64.3.0/26 198.51.100.3", "fd00:64:0:3::/122 link-local"}},
		{"block of two nodes", routes.ModeVXLAN, []routes.Peer{distant(3),
			change(distant(4), func(p *routes.Peer) { p.Blocks = distant(3).Blocks[:1] })},
			`node "n004": block 10.64.3.0/26 is a block of node "n003"`,
			[]string{"10.64.3.0/26 198.51.100.3", "fd00:64:0:3::/122 link-local"}},
		{"own block", routes.ModeVXLAN, []routes.Peer{
			change(distant(4), func(p *routes.Peer) { p.Blocks = peer(1).Blocks })},
			"block 10.64.1.0/26 is a block of this node", nil},
		{"address in the block of another node", routes.ModeVXLAN, []routes.Peer{distant(3),
			change(distant(4), func(p *routes.Peer) { p.Blocks = prefixes("10.64.3.7/32") })}, "",
			[]string{"10.64.3.0/26 198.51.100.3", "10.64.3.7/32 198.51.100.4",
				"fd00:64:0:3::/122 link-local"}},
		{"no shared link", routes.ModeHostGW, []routes.Peer{nearby(2), distant(3)},
			`node "n003", IPv4: no address of [198.51.100.3 2001:db8:1::3] is on a shared link`,
			[]string{"10.64.2.0/26 192.0.2.2", "fd00:64:0:2::/122 2001:db8::2"}},
		{"IPv6 through IPv4", routes.ModeHostGW, []routes.Peer{peerOf4(nearby(2))},
			`node "n002", IPv6: no address`, []string{"10.64.2.0/26 192.0.2.2"}},
		{"IPv6 through IPv4 needs VXLAN", routes.ModeAuto, []routes.Peer{peerOf4(nearby(2))}, "",
			[]string{"10.64.2.0/26 192.0.2.2", "fd00:64:0:2::/122 link-local"}},
		{"IPv4 through IPv6", routes.ModeHostGW, []routes.Peer{
			change(nearby(2), func(p *routes.Peer) { p.Addrs = p.Addrs[1:] })}, "",
			[]string{"10.64.2.0/26 2001:db8::2", "fd00:64:0:2::/122 2001:db8::2"}},
		{"no MAC address", routes.ModeAuto, []routes.Peer{nearby(2),
			change(distant(3), func(p *routes.Peer) { p.MAC = nil })}, "MAC address for VXLAN is missing",
			[]string{"10.64.2.0/26 192.0.2.2", "fd00:64:0:2::/122 2001:db8::2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSingle(t)
			s.options.Mode = row.mode
			s.host.Batch("route add default via 192.0.2.2", "route add default via 2001:db8::2")
			report, err := s.try(s.router(nil), wanting(row.peers...))
			if err != nil {
				t.Fatal(err)
			}
			problems := errors.Join(report.Problems...)
			if (row.want == "") != (problems == nil) ||
				problems != nil && !strings.Contains(problems.Error(), row.want) {
				t.Errorf("problems %v, want %q", problems, row.want)
			}
			state, err := inspect(s)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range state.Routes {
				via := r.Via.String()
				if r.Via.IsLinkLocalUnicast() {
					via = "link-local"
				}
				if r.Type == "unicast" {
					got = append(got, r.Dst.String()+" "+via)
				}
			}
			if diff := cmp.Diff(row.dsts, got); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPoolAroundNodes: a pool that contains addresses of nodes does not make them unreachable.
func TestPoolAroundNodes(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	s.host.Batch("route add default via 192.0.2.2")
	w := wanting(distant(3))
	w.Pools = prefixes("198.51.0.0/16", "10.64.0.0/12")
	report, err := s.try(s.router(nil), w)
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Error(),
		"pool 198.51.0.0/16 contains the address 198.51.100.3 of a node") {
		t.Errorf("problems %v: %v", report.Problems, err)
	}
	got := s.host.Command("ip", "route")
	if strings.Contains(got, "unreachable 198.51") || !strings.Contains(got, "unreachable 10.64") {
		t.Errorf("routes:\n%s", got)
	}
}

// TestReturnedBlock: a bridge keeps the gateway of a block that its node has returned. Packets to
// the next owner leave the node nevertheless, and stay on it when it owns the block again.
func TestReturnedBlock(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	s.host.Batch("link add br0 type bridge", "link add port type veth peer name end",
		"link set port master br0 up", "link set end up", "link set br0 up",
		"address add 10.64.2.1/26 dev br0", "address add fd00:64:0:2::1/122 dev br0 nodad")
	lead := func(to4, to6 string) {
		t.Helper()
		for addr, path := range map[string]string{"10.64.2.2": to4, "10.64.2.62": to4,
			"fd00:64:0:2::2": to6, "fd00:64:0:2::3f": to6} {
			if got := s.host.Command("ip", "route", "get", addr); !strings.Contains(got, path) {
				t.Errorf("the route to %s is not %s: %s", addr, path, got)
			}
		}
	}
	want := wanting(nearby(2))
	s.apply(want)
	lead("via 192.0.2.2 dev uplink", "via 2001:db8::2 dev uplink")
	if got := s.host.Command("ip", "neigh", "show", "proxy"); got != "" {
		t.Errorf("proxy entries: %s", got)
	}
	if n := s.apply(want); n != 0 {
		t.Errorf("%d changes the second time", n)
	}
	want.Own.Blocks, want.Peers = append(want.Own.Blocks, peer(2).Blocks...), nil
	s.apply(want)
	lead("dev br0", "dev br0")
}

// TestNoCommonFamily: nodes without a common family cannot reach each other.
func TestNoCommonFamily(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	s.options.Mode, s.options.Nodes = routes.ModeVXLAN, s.options.Nodes[:1]
	p := distant(3)
	p.Addrs = p.Addrs[1:]
	report, err := s.try(s.router(nil), wanting(p))
	if err != nil || len(report.Problems) != 2 ||
		!strings.Contains(report.Problems[0].Error(), "no family in common") {
		t.Errorf("problems %v: %v", report.Problems, err)
	}
}

// TestMTU: the MTU is the one of the smallest path, whatever its order.
func TestMTU(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		mode  routes.Mode
		nodes int // own addresses: 1 is IPv4 only
		sizes []int
		want  int
	}{
		{"nobody else", routes.ModeVXLAN, 2, nil, 1450},
		{"nobody else, host-gw", routes.ModeHostGW, 2, nil, 1500},
		{"unknown", routes.ModeVXLAN, 2, []int{0}, 1450},
		{"larger", routes.ModeVXLAN, 2, []int{9000}, 1450},
		{"one is smaller", routes.ModeVXLAN, 2, []int{9000, 1300, 1500}, 1250},
		{"one is smaller, host-gw", routes.ModeHostGW, 2, []int{9000, 1300, 1500}, 1300},
		{"auto allows for a tunnel", routes.ModeAuto, 2, []int{1300}, 1250},
		{"off", routes.ModeOff, 2, []int{1300}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSingle(t)
			s.options.Mode, s.options.Nodes = row.mode, s.options.Nodes[:row.nodes]
			var peers []routes.Peer
			for i, size := range row.sizes {
				p := nearby(2 + i)
				p.MTU = size
				peers = append(peers, p)
			}
			report, err := s.try(s.router(nil), wanting(peers...))
			if err != nil || report.MTU != row.want {
				t.Errorf("MTU %d, want %d: %v", report.MTU, row.want, err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	valid := []netip.Addr{addr("192.0.2.1")}
	for name, o := range map[string]routes.Options{
		"unknown mode":      {Mode: "gre", Nodes: valid},
		"no address":        {},
		"loopback":          {Nodes: []netip.Addr{addr("127.0.0.1")}},
		"link-local":        {Nodes: []netip.Addr{addr("fe80::1")}},
		"two of a family":   {Nodes: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}},
		"VNI too large":     {Nodes: valid, VNI: 1 << 24},
		"VNI below 1":       {Nodes: valid, VNI: -1},
		"long device name":  {Nodes: valid, Device: "fifteen-letters"},
		"long cluster name": {Nodes: valid, Cluster: strings.Repeat("x", 250)},
	} {
		if _, err := routes.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := routes.New(routes.Options{Mode: routes.ModeOff}); err != nil {
		t.Error(err)
	}
}

func TestVTEPMAC(t *testing.T) {
	t.Parallel()
	a, b := routes.VTEPMAC("a"), routes.VTEPMAC("b")
	if a.String() == b.String() || a.String() != routes.VTEPMAC("a").String() || a[0]&3 != 2 {
		t.Errorf("%s, %s", a, b)
	}
}
