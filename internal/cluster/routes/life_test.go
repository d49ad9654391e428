package routes_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestNodeLeavesAndReturns: a node joins a running cluster, dies, and returns with another identity
// and address. The others reach its containers again, and keep nothing of its former life.
func TestNodeLeavesAndReturns(t *testing.T) {
	t.Parallel()
	for _, mode := range []routes.Mode{routes.ModeVXLAN, routes.ModeAuto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, mode, dual, true)
			third := l.nodes[2]
			third.alive = false
			first := &single{t: t, host: l.nodes[0].Host}
			l.apply()
			pods := map[*node][]netip.Addr{}
			for _, n := range l.nodes[:2] {
				pods[n] = n.pod("pod")
			}
			l.apply()
			l.full(pods)
			before := first.state()

			third.alive = true
			l.apply()
			pods[third] = third.pod("pod")
			l.apply()
			l.full(pods)

			third.alive = false
			l.apply()
			first.expect("after the node has left", before)
			testnet.Reaches(t, l.nodes[0].Container("pod"), pods[third][0], false)

			third.alive = true
			third.Host.Command("ip", "address", "flush", "dev", "eth0", "scope", "global")
			l.address(third.Host, dual, "192.0.3.33", "2001:db8:1::21")
			third.own.Addrs = []netip.Addr{netip.MustParseAddr("192.0.3.33"), netip.MustParseAddr("2001:db8:1::21")}
			third.own.MAC = routes.VTEPMAC("another identity")
			third.restart()
			l.apply()
			l.full(pods)
			if state := first.state(); strings.Contains(state, routes.VTEPMAC("identity 3").String()) ||
				strings.Contains(state, "192.0.3.3 ") {
				t.Errorf("entries of the former node:\n%s", state)
			}
			third.alive = false
			l.apply()
			first.expect("after the node has left again", before)
		})
	}
}

// TestSmallerLink: containers learn that the link of one node is smaller than their own MTU.
func TestSmallerLink(t *testing.T) {
	t.Parallel()
	for _, mode := range []routes.Mode{routes.ModeVXLAN, routes.ModeHostGW} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, mode, dual, false)
			l.apply()
			pods := l.pods() // with the MTU for large links
			large := l.nodes[0].report.MTU
			small := l.nodes[2]
			small.Host.Command("ip", "link", "set", "eth0", "mtu", "1400")
			small.own.MTU = 1400
			l.apply()
			if got := l.nodes[0].report.MTU; got != large-100 {
				t.Errorf("MTU %d, want %d", got, large-100)
			}
			from := l.nodes[0].Container("pod")
			for _, to := range pods[small] {
				limit(t, from, small.Container("pod"), to, large-100)
			}
			for _, to := range pods[l.nodes[1]] {
				datagram(t, from, l.nodes[1].Container("pod"), to, large)
			}
		})
	}
}

// TestForeign: routes and devices of other programs stay, whatever Apply and Remove do.
func TestForeign(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	w := wanting(nearby(2), distant(3))
	s.apply(w)
	s.remove()
	s.host.Batch("link add other type vxlan id 7 dstport 4790 local 192.0.2.1",
		"link set other alias tenon:0123 up",
		"route add 10.64.2.0/26 via 192.0.2.9 proto static metric 2000",
		"route add 10.64.3.0/26 via 192.0.2.9 proto bird metric 5",
		"route add 10.64.77.0/26 via 192.0.2.9 proto 116",
		"route add blackhole fd00:64::/48 proto static metric 1000000",
		"neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev uplink nud permanent")
	before := s.state()
	report, err := s.try(s.router(nil), w)
	if err != nil {
		t.Fatal(err)
	}
	problems := errors.Join(report.Problems...)
	for _, dst := range []string{"10.64.2.0/26", "fd00:64::/48"} {
		if problems == nil || !strings.Contains(problems.Error(), dst) {
			t.Errorf("problems do not name %s: %v", dst, problems)
		}
	}
	if len(report.Problems) != 2 {
		t.Errorf("problems: %v", problems)
	}
	for _, line := range []string{
		"10.64.2.0/26 via 192.0.2.9 dev uplink proto static metric 2000",
		"10.64.3.0/26 via 198.51.100.3 dev tenon-vx proto 117",
	} {
		if got := s.host.Command("ip", "route"); !strings.Contains(got, line) {
			t.Errorf("no route %s in\n%s", line, got)
		}
	}
	s.remove()
	s.expect("after Remove", before)
}

// TestForeignDevice: another device with the name of the tunnel is neither used nor changed, and
// paths that need no tunnel work nevertheless.
func TestForeignDevice(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"kind":           "link add tenon-vx type bridge",
		"owner":          "link add tenon-vx type vxlan id 7628142 dstport 4789 local 192.0.2.1 nolearning alias mine",
		"in use":         "link add tenon-vx up type vxlan id 7628142 dstport 4789 local 192.0.2.1 nolearning",
		"other VNI":      "link add tenon-vx type vxlan id 5 dstport 4789 local 192.0.2.1 nolearning",
		"other cluster":  "link add tenon-vx type vxlan id 7628142 dstport 4789 local 192.0.2.1 nolearning alias tenon-cluster:other",
		"learning":       "link add tenon-vx type vxlan id 7628142 dstport 4789 local 192.0.2.1",
		"long-lived tap": "tuntap add tenon-vx mode tap",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSingle(t)
			command, label, _ := strings.Cut(command, " alias ")
			s.host.Batch(command)
			if label != "" {
				s.host.Batch("link set tenon-vx alias " + label)
			}
			show := func() string { return s.host.Command("ip", "-d", "link", "show", "tenon-vx") }
			before := show()
			_, err := s.try(s.router(nil), wanting(nearby(2), distant(3)))
			if !errors.Is(err, routes.ErrForeignDevice) {
				t.Errorf("error %v", err)
			}
			if got := s.host.Command("ip", "route"); !strings.Contains(got, "10.64.2.0/26 via 192.0.2.2") {
				t.Errorf("no route to the node nearby:\n%s", got)
			}
			if name != "other cluster" { // Remove is for all clusters
				s.remove()
			}
			if after := show(); after != before {
				t.Errorf("before:\n%safter:\n%s", before, after)
			}
		})
	}
}

// TestModes: a changed option replaces what the former one needed.
func TestModes(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	w := wanting(nearby(2))
	var none string
	for i, mode := range []routes.Mode{
		routes.ModeOff, routes.ModeVXLAN, routes.ModeHostGW, routes.ModeAuto, routes.ModeOff,
	} {
		s.options.Mode = mode
		s.apply(w)
		got := s.host.Command("ip", "-br", "link")
		if has := strings.Contains(got, "tenon-vx"); has != (mode == routes.ModeVXLAN || mode == routes.ModeAuto) {
			t.Errorf("%s: links\n%s", mode, got)
		}
		via := map[routes.Mode]string{
			routes.ModeVXLAN: "192.0.2.2 dev tenon-vx", routes.ModeHostGW: "192.0.2.2 dev uplink",
			routes.ModeAuto: "192.0.2.2 dev uplink",
		}[mode]
		got = s.host.Command("ip", "route", "show", "10.64.2.0/26")
		if (via == "") != (got == "") || !strings.Contains(got, via) {
			t.Errorf("%s: route %q, want %q", mode, got, via)
		}
		if i == 0 {
			none = s.state()
		}
	}
	s.expect("off again", none)

	s.options = routes.Options{Mode: routes.ModeVXLAN, Cluster: "lab", Nodes: s.options.Nodes}
	s.apply(w)
	s.options.VNI, s.options.Port, s.options.NoChecksumOffload = 99, 8472, true
	s.apply(w)
	got := s.host.Command("ip", "-d", "link", "show", "tenon-vx")
	if !strings.Contains(got, "id 99") || !strings.Contains(got, "dstport 8472") {
		t.Errorf("device: %s", got)
	}
	if n := s.apply(w); n != 0 {
		t.Errorf("%d changes", n)
	}
	s.options.Device = "other-vx" // its predecessor goes
	s.apply(w)
	if got := s.host.Command("ip", "-br", "link"); strings.Contains(got, "tenon-vx") ||
		!strings.Contains(got, "other-vx") {
		t.Errorf("links:\n%s", got)
	}
	state, err := inspect(s)
	if err != nil || len(state.Devices) != 1 || state.Devices[0].Nodes != 1 ||
		state.Devices[0].Cluster != "lab" || len(state.Routes) != 2+len(w.Own.Blocks)+len(pools) ||
		len(state.Pools) != len(pools) {
		t.Errorf("state %+v: %v", state, err)
	}
	s.remove()
	if state, err = inspect(s); err != nil || len(state.Devices)+len(state.Routes)+len(state.Pools) != 0 {
		t.Errorf("after Remove: %+v, %v", state, err)
	}
}

func inspect(s *single) (state routes.State, err error) {
	s.host.Do(func() { state, err = routes.Inspect(context.Background()) })
	return state, err
}
