package kernel_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestFormatVLANs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		list []kernel.VLAN
		want string
	}{
		{"none", nil, "none"},
		{"one", []kernel.VLAN{{ID: 7}}, "7"},
		{"access port", []kernel.VLAN{{ID: 100, PVID: true, Untagged: true}}, "100 pvid untagged"},
		{"successive IDs with equal flags form a range", []kernel.VLAN{{ID: 1, Untagged: true}, {ID: 2}, {ID: 3}, {ID: 5}}, "1 untagged, 2-3, 5"},
		{"a range does not contain the PVID", []kernel.VLAN{{ID: 1, PVID: true}, {ID: 2}}, "1 pvid, 2"},
	} {
		if got := kernel.FormatVLANs(row.list); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestVLANs(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVLANFiltering))
	b := setup(t)
	_, port := b.veth(t)
	br, created, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", VLANFiltering: true})
	must(t, err)
	if !created || !br.VLANFiltering {
		t.Fatalf("created %t: %+v", created, br)
	}
	must(t, b.host.Links.SetMAC(br, br.MAC)) // otherwise it changes with the ports
	b.tx.Keep()
	before := b.snapshot(t)
	table := func(want string) {
		t.Helper()
		have, err := b.host.Links.VLANs(port)
		must(t, err)
		if got := kernel.FormatVLANs(have); got != want {
			t.Errorf("VLANs %s, want %s", got, want)
		}
	}

	must(t, b.host.Links.SetMaster(port, br))
	table("1 pvid untagged")
	must(t, b.host.Links.AddVLANs(port, []kernel.VLAN{{ID: 100, PVID: true, Untagged: true}, {ID: 101}, {ID: 200}, {ID: 201}, {ID: 202}}))
	table("1 untagged, 100 pvid untagged, 101, 200-202")
	must(t, b.host.Links.DeleteVLANs(port, []kernel.VLAN{{ID: 1}, {ID: 201}, {ID: 202}, {ID: 4094}}))
	table("100 pvid untagged, 101, 200")
	must(t, b.tx.Rollback())
	b.unchanged(t, before)

	must(t, b.host.Links.SetMaster(port, br))
	all := make([]kernel.VLAN, 0, 4093) // the longest list in a request to the kernel
	for id := uint16(2); id <= 4094; id++ {
		all = append(all, kernel.VLAN{ID: id})
	}
	must(t, b.host.Links.AddVLANs(port, all))
	table("1 pvid untagged, 2-4094")
}

// TestEnsureBridgeLeavesVLANFiltering: an existing bridge keeps its forwarding mode.
func TestEnsureBridgeLeavesVLANFiltering(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Host.Command("ip", "link", "add", "br0", "type", "bridge")
	br, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", VLANFiltering: true})
	must(t, err)
	if br.VLANFiltering {
		t.Error("VLAN filtering was switched on")
	}
}

func TestSharedIsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shared := b.host.Shared()
	one, _, err := shared.Links.AddVeth(kernel.Veth{Name: "shared", Host: shared, HostName: "peer", Alias: "alias"})
	must(t, err)
	must(t, shared.Links.Up(one))
	before := b.snapshot(t)
	must(t, b.host.Links.SetAlias(one, "undone"))
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}
