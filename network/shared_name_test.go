package network_test

import (
	"errors"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// TestInterfaceOfAnotherNetwork: ADD of a second network with the interface name of the first
// fails. The rollback must not call DEL of the plugin that failed, which would remove the interface
// of the first network (PL-DEL-10). Neither must the cleanup after an interrupted ADD.
func TestInterfaceOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	scripts := map[string]script{"red": {}, "before": {},
		"blue": {cni.Add: fails(100, "eth0 exists")}, "after": {}}
	for name, row := range map[string]struct {
		ifName, netns string
		interrupted   bool
		calls         string
		taken         bool
	}{
		"same name": {ifName: "eth0", calls: "ADD before, ADD blue, DEL before",
			taken: true},
		"another name": {ifName: "eth1",
			calls: "ADD before, ADD blue, DEL after, DEL blue, DEL before"},
		"other namespace": {ifName: "eth0", netns: "/run/netns/new",
			calls: "ADD before, ADD blue, DEL after, DEL blue, DEL before"},
		"interrupted": {ifName: "eth0", interrupted: true, calls: ""},
		"interrupted eth1": {ifName: "eth1", interrupted: true,
			calls: "DEL after, DEL blue, DEL before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, scripts)
			r.add(list(t, "1.0.0", "first", "red"))
			q := request("c1")
			q.IfName = row.ifName
			if row.netns != "" {
				q.Netns = row.netns
			}
			second := list(t, "1.0.0", "second", "before", "blue", "after")
			if row.interrupted {
				if err := r.PutAdding(second, q); err != nil {
					t.Fatal(err)
				}
				if err := r.Recover(t.Context(), nil); err != nil {
					t.Error(err)
				}
			} else if _, err := r.Add(t.Context(), second, q); cni.CodeOf(err) != 100 ||
				errors.Is(err, network.ErrInterfaceInUse) != row.taken {
				t.Errorf("ADD: %s", describe(err))
			}
			r.wantCalls(row.calls)
			r.wantRecorded("first/c1/eth0 attached")
		})
	}
}
