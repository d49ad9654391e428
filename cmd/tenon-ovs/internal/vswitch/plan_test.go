package vswitch

import (
	"fmt"
	"net/netip"
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
