package vswitch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// TestFreeTag chooses the tag of a new segment.
func TestFreeTag(t *testing.T) {
	t.Parallel()
	var all []int
	for tag := 1; tag <= maxTag; tag++ {
		all = append(all, tag)
	}
	for _, row := range []struct {
		name  string
		tags  []int             // of access ports
		trunk []int             // VLANs of a trunk port
		ids   map[string]string // of the bridge
		fixed int
		want  int
		code  cni.Code
	}{
		{name: "the lowest", want: 1},
		{name: "VLAN 0 of a port counts for nothing", tags: []int{0}, want: 1},
		{name: "not the tag of a port", tags: []int{1, 3}, want: 2},
		{name: "not a VLAN of a trunk", trunk: []int{1, 2, 4095}, want: 3},
		{name: "not the tag of a segment", ids: map[string]string{"cni-vni-7": "1"}, want: 2},
		{name: "entries that are not ours", ids: map[string]string{"cni-vni-x": "1", "cni-vni-8": "x", "other": "1"}, want: 1},
		{name: "the last one", trunk: all[:maxTag-1], want: maxTag},
		{name: "none", trunk: all, code: cni.CodeTryAgainLater},
		{name: "fixed", fixed: 9, want: 9},
		{name: "fixed, of a port", tags: []int{9}, fixed: 9, want: 9},
		{name: "fixed, of a segment", ids: map[string]string{"cni-vni-7": "9"}, fixed: 9, code: cni.CodeInvalidConfig},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := &bridge{id: "b", name: "ovs0", ids: row.ids}
			s := &state{bridges: map[string]*bridge{"ovs0": b}, ports: map[string]*port{}}
			add := func(p port) {
				p.id = fmt.Sprintf("p%d", len(b.ports))
				b.ports, s.ports[p.id] = append(b.ports, p.id), &p
			}
			for _, tag := range row.tags {
				add(port{tag: tag})
			}
			add(port{trunks: row.trunk})
			got, err := s.freeTag(b, ovs.Segment{VNI: 42, Tag: row.fixed})
			if got != row.want || cni.CodeOf(err) != row.code {
				t.Errorf("%d, %v; want %d, code %d", got, err, row.want, row.code)
			}
		})
	}
}

// TestTunnelName: names fit into 15 bytes and differ by bridge, segment and node.
func TestTunnelName(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, bridge := range []string{"ovs0", "ovs01"} {
		for _, vni := range []int{1, 11, 1<<24 - 1} {
			for _, remote := range []string{"192.0.2.1", "192.0.2.11", "2001:db8::1"} {
				name := tunnelName(bridge, vni, netip.MustParseAddr(remote))
				if seen[name] || len(name) != 14 || !strings.HasPrefix(name, "vx") {
					t.Errorf("%s %d %s: %s", bridge, vni, remote, name)
				}
				seen[name] = true
			}
		}
	}
}

// TestCarries: the modes of ports, as ovs-vswitchd.conf.db(5) describes them.
func TestCarries(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		port port
		want []int // of VLANs 5, 6 and 7
	}{
		{"nothing set", port{}, []int{5, 6, 7}},
		{"tag alone", port{tag: 5, tagged: true}, []int{5}},
		{"tag 0 alone", port{tagged: true}, nil},
		{"tag alone hides trunks", port{tag: 5, tagged: true, trunks: []int{6}}, []int{5}},
		{"trunks alone", port{trunks: []int{6, 7}}, []int{6, 7}},
		{"access", port{mode: "access", tag: 5, tagged: true}, []int{5}},
		{"access without tag", port{mode: "access"}, nil},
		{"tunnel of VLANs", port{mode: "dot1q-tunnel", tag: 5, tagged: true}, []int{5}},
		{"trunk", port{mode: "trunk"}, []int{5, 6, 7}},
		{"trunk of some", port{mode: "trunk", trunks: []int{6}}, []int{6}},
		{"trunk hides tag", port{mode: "trunk", tag: 5, tagged: true, trunks: []int{6}}, []int{6}},
		{"native", port{mode: "native-untagged", tag: 5, tagged: true, trunks: []int{6}}, []int{5, 6}},
		{"native of all", port{mode: "native-tagged", tag: 5, tagged: true}, []int{5, 6, 7}},
	} {
		var got []int
		for vlan := 5; vlan <= 7; vlan++ {
			if row.port.carries(vlan) {
				got = append(got, vlan)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestAlone: a new segment ignores the earlier port of its own attachment and its own ports.
func TestAlone(t *testing.T) {
	t.Parallel()
	ids := func(container, vni string) map[string]string {
		return map[string]string{
			idOwner: ownerOurs, idNetwork: "net", idContainer: container, idIfName: "eth0", idVNI: vni,
		}
	}
	b := &bridge{id: "b", name: "ovs0", ports: []string{"p", "q", "r"}}
	s := &state{bridges: map[string]*bridge{"ovs0": b}, ports: map[string]*port{
		"p": {id: "p", name: "own", ids: ids("c", "")},
		"q": {id: "q", name: "member", ids: ids("d", "42")}, // another program has removed its tag
		"r": {id: "r", name: "ovs0"},
	}}
	want := ovs.Port{Segment: &ovs.Segment{VNI: 42}}
	want.Owner.Attachment = cni.Attachment{Network: "net", Container: "c", IfName: "eth0"}
	if exposure, err := s.alone(b, want, 1); err != nil || exposure.Ports != nil {
		t.Errorf("%v, %v", exposure, err)
	}
	for container, vni := range map[string]int{"c": 43, "e": 42} {
		other := want
		other.Owner.Container, other.Segment = container, &ovs.Segment{VNI: vni}
		if _, err := s.alone(b, other, 1); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("container %s, segment %d: %v", container, vni, err)
		}
	}
}
