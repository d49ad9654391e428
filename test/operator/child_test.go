package operator

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// Commands that give web and db devices of a kind on the uplink, with addresses in its network.
const (
	macvlans = `ip link add m1 link up0 type macvlan mode bridge; ip link add m2 link up0 type macvlan mode bridge
		` + moved
	ipvlans = `ip link add m1 link up0 type ipvlan mode l2; ip link add m2 link up0 type ipvlan mode l2
		` + moved
	vlans = `ip link add m1 link up0 type vlan id 7; ip link add m2 link up0 type vlan id 8
		` + moved + `
		outside ip addr del 192.0.2.2/24 dev e0
		outside ip link add link e0 name e7 type vlan id 7; outside ip link set e7 up
		outside ip addr add 192.0.2.2/24 dev e7`
	moved = `ip link set m1 netns $WEB; ip link set m2 netns $DB
		web ip link set m1 up; web ip addr add 192.0.2.11/24 dev m1
		db ip link set m2 up; db ip addr add 192.0.2.12/24 dev m2`
)

// TestChildren follows packets through macvlan, ipvlan and VLAN devices, and makes the connections.
func TestChildren(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		needs        kernel.Feature
		create, flow string
		want         why.Verdict
		culprit      string
	}{
		{"macvlan to the wire", kernel.FeatureMacvlan, macvlans, `web 192.0.2.2:9000`, why.Delivered, ""},
		{"macvlan from the wire", kernel.FeatureMacvlan, macvlans, `outside 192.0.2.12:80`, why.Delivered, ""},
		{"macvlan siblings", kernel.FeatureMacvlan, macvlans, `web 192.0.2.12:80`, why.Delivered, ""},
		{"macvlan to the host", kernel.FeatureMacvlan, macvlans, `web 192.0.2.1:9100`, why.Stopped,
			"macvlan.parent"},
		{"host to macvlan", kernel.FeatureMacvlan, macvlans, `host 192.0.2.11:80`, why.Stopped,
			"macvlan.parent"},
		{"host with a macvlan", kernel.FeatureMacvlan, macvlans + `
			ip link add shim link up0 type macvlan mode bridge; ip link set shim up
			ip route add 192.0.2.11 dev shim src 192.0.2.1; web ip route add 192.0.2.1 dev m1`,
			`host 192.0.2.11:80`, why.Delivered, ""},
		{"macvlan private", kernel.FeatureMacvlan, macvlans + `
			web ip link set m1 type macvlan mode private`, `web 192.0.2.12:80`, why.Stopped,
			"macvlan.private"},
		{"parent down", kernel.FeatureMacvlan, macvlans + `
			ip link set up0 down`, `web 192.0.2.12:80`, why.Stopped, "link.down"},
		{"ipvlan to the wire", kernel.FeatureIPvlan, ipvlans, `web 192.0.2.2:9000`, why.Delivered, ""},
		{"ipvlan siblings", kernel.FeatureIPvlan, ipvlans, `web 192.0.2.12:80`, why.Delivered, ""},
		{"ipvlan to the host", kernel.FeatureIPvlan, ipvlans, `web 192.0.2.1:9100`, why.Stopped,
			"ipvlan.parent"},
		{"VLAN to the wire", kernel.FeatureVLAN, vlans, `web 192.0.2.2:9000`, why.Delivered, ""},
		{"another VLAN", kernel.FeatureVLAN, vlans, `db 192.0.2.2:9000`, why.Stopped, "vlan.none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(row.needs))
			n := newNode(t)
			n.shell(row.create)
			if connects := n.connects(row.flow); connects != (row.want == why.Delivered) {
				t.Errorf("the connection succeeds: %t", connects)
			}
			r := n.explain(row.flow)
			if r.Verdict != row.want || row.culprit != "" && r.Culprits[0].ID != row.culprit {
				t.Error(describe(r))
			}
		})
	}
}
