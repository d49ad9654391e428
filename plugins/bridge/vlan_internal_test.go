package bridge

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// TestPortVLANs: the VLANs of a port, on every kernel. A trunk has native VLAN 1 unless the
// configuration names another one.
func TestPortVLANs(t *testing.T) {
	t.Parallel()
	id := func(n int) *int { return &n }
	for _, row := range []struct {
		name  string
		vlan  int
		trunk []Trunk
		want  string
	}{
		{"none", 0, nil, "none"},
		{"empty trunk", 0, []Trunk{}, "none"},
		{"access", 7, nil, "7 pvid untagged"},
		{"trunk of one VLAN", 0, []Trunk{{ID: id(42)}}, "1 pvid untagged, 42"},
		{"trunk of the last VLAN", 0, []Trunk{{ID: id(4094)}}, "1 pvid untagged, 4094"},
		{"trunk of one range", 0, []Trunk{{MinID: id(42), MaxID: id(43)}},
			"1 pvid untagged, 42-43"},
		{"trunk of the default VLAN", 0, []Trunk{{ID: id(1)}}, "1 pvid untagged"},
		{"trunk with a native VLAN", 7, []Trunk{{ID: id(42)}}, "7 pvid untagged, 42"},
		{"trunk that names its native VLAN", 42, []Trunk{{ID: id(42)}}, "42 pvid untagged"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := Config{VLAN: row.vlan, VLANTrunk: row.trunk}
			if got := kernel.FormatVLANs(c.vlans()); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
