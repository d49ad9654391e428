package ovs

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// TestModes sends a broadcast from each kind of port and compares who receives it in which VLAN. An
// access port sends and receives without tags. A trunk passes its VLANs with tags and no frame
// without one. A trunk of all VLANs also passes frames without a tag.
func TestModes(t *testing.T) {
	t.Parallel()
	h := newCluster(t, 1, ovslab.Start, ipv4).hosts[0]
	var ports []*port
	byName := map[string]*port{}
	for _, c := range []struct {
		name string
		conf conf
	}{
		{"access5", conf{"vlan": 5}},
		{"other5", conf{"vlan": 5}},
		{"access6", conf{"vlan": 6}},
		{"trunk", conf{"trunk": []conf{{"id": 5}, {"minID": 7, "maxID": 8}}}},
		{"all", conf{}},
		{"all2", conf{}},
		{"isolated5", conf{"vlan": 5, "isolated": true}},
		{"isolated5b", conf{"vlan": 5, "isolated": true}},
	} {
		h.must(cni.Add, c.name, c.conf)
		p := open(t, h.Container(c.name))
		ports, byName[c.name] = append(ports, p), p
	}
	for _, row := range []struct {
		from string
		vlan uint16
		want []string
	}{
		{"access5", 0, []string{"other5: x", "trunk: x in 5", "all: x in 5", "all2: x in 5",
			"isolated5: x", "isolated5b: x"}},
		{"isolated5", 0, []string{"access5: x", "other5: x", "trunk: x in 5", "all: x in 5",
			"all2: x in 5"}},
		{"access6", 0, []string{"all: x in 6", "all2: x in 6"}},
		{"access5", 6, nil},
		{"trunk", 0, nil},
		{"trunk", 5, []string{"access5: x", "other5: x", "all: x in 5", "all2: x in 5",
			"isolated5: x", "isolated5b: x"}},
		{"trunk", 6, nil},
		{"trunk", 7, []string{"all: x in 7", "all2: x in 7"}},
		{"all", 0, []string{"all2: x"}},
		{"all", 8, []string{"trunk: x in 8", "all2: x in 8"}},
	} {
		byName[row.from].send(t, row.vlan, "x")
		var want []string
		for _, line := range row.want {
			want = append(want, line+" x1")
		}
		t.Logf("from %s in VLAN %d", row.from, row.vlan)
		received(t, ports, want...)
	}
}

// TestTagOfSegment: no port outside a segment can send frames into it with its tag, because the
// plugin refuses the ports that could. The frames of an operator's port are the operator's concern.
func TestTagOfSegment(t *testing.T) {
	t.Parallel()
	h := newCluster(t, 1, ovslab.Start, ipv4).hosts[0]
	segment := conf{"vxlanID": 42, "vlan": 7}
	var ports []*port
	for _, c := range []struct {
		name string
		conf conf
	}{
		{"member", segment}, {"member2", segment}, {"access", conf{"vlan": 8}},
		{"trunk", conf{"trunk": []conf{{"minID": 1, "maxID": 6}, {"minID": 8, "maxID": 4094}}}},
	} {
		h.must(cni.Add, c.name, c.conf)
		ports = append(ports, open(t, h.Container(c.name)))
	}
	member, access, trunk := ports[0], ports[2], ports[3]
	for _, c := range []conf{{}, {"trunk": []conf{{"id": 7}}}, {"vlan": 7}} {
		_, err := h.call(cni.Add, "refused", c)
		if err == nil || !strings.Contains(err.Error(), "7 represents VXLAN segment 42 on bridge ovs0") {
			t.Errorf("ADD with %v: %v", c, err)
		}
	}
	for _, vlan := range []uint16{0, 7} {
		trunk.send(t, vlan, "x")
		received(t, ports)
	}
	access.send(t, 7, "x")
	received(t, ports)
	trunk.send(t, 8, "x")
	received(t, ports, "access: x x1")
	member.send(t, 0, "x")
	received(t, ports, "member2: x x1")
}
