package probe_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// What the tools of others manage to make must be reported as there, and nothing else.
func TestMissingAgreesWithTools(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("ip"), testnet.Tool("nft"), testnet.Tool("tc"))
	n := testnet.New(t)
	n.Host.Command("ip", "link", "add", "lower", "type", "veth", "peer", "name", "other")
	for feature, command := range map[probe.Feature]string{
		probe.Veth:    "ip link add test type veth",
		probe.Bridge:  "ip link add test type bridge",
		probe.Macvlan: "ip link add test link lower type macvlan",
		probe.IPvlan:  "ip link add test link lower type ipvlan",
		probe.VLAN:    "ip link add test link lower type vlan id 7",
		probe.Dummy:   "ip link add test type dummy",
		probe.VRF:     "ip link add test type vrf table 7",
		probe.IFB:     "ip link add test type ifb",
		probe.Tun:     "ip tuntap add mode tap name test",
		probe.NFT:     "nft add table inet test",
		probe.IPv6:    "ip -6 addr add fd00::1/64 dev lower",

		probe.VLANFiltering: "ip link add test type bridge vlan_filtering 1",
		probe.PolicyRules:   "ip rule add from 10.1.2.3 lookup 100",
		probe.Shaping:       "tc qdisc add dev lower root tbf rate 1mbit burst 10k latency 1ms",
	} {
		scratch := n.Container(string(feature))
		scratch.Command("ip", "link", "add", "lower", "type", "veth", "peer", "name", "other")
		var missing []probe.Feature
		var err error
		scratch.Do(func() { missing, err = probe.Missing(feature) })
		if err != nil {
			t.Errorf("%s: %v", feature, err)
		}
		works := scratch.Try(strings.Fields(command)...) == nil
		if reported := !slices.Contains(missing, feature); reported != works {
			t.Errorf("%s: reported %t, but %q works %t", feature, reported, command, works)
		}
	}
}

func TestMissingOfUnknownKind(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	missing, err := probe.Missing("nosuchkind", probe.Veth)
	if want := []probe.Feature{"nosuchkind"}; err != nil || !slices.Equal(missing, want) {
		t.Errorf("got %v, %v; want %v", missing, err, want)
	}
}

func TestMissingChangesNothing(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	before := testnet.Snapshot(t, n.Spaces())
	n.Host.Do(func() {
		if _, err := probe.Missing(probe.Veth, probe.Bridge, probe.Dummy, probe.NFT, probe.IPv6, probe.Tun, probe.SELinux, probe.VLANFiltering, probe.PolicyRules, probe.Shaping); err != nil {
			t.Error(err)
		}
	})
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("state has changed:\n%s", diff)
	}
}

// TestMissingWithoutPrivilege: what cannot be asked is not taken for missing, and the error says why. Neither does
// masquerading choose its backend by asking: it is nftables unless the configuration says iptables.
func TestMissingWithoutPrivilege(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	n := testnet.New(t)
	n.Host.Do(func() { // on a thread that ends afterwards
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			t.Error(err)
			return
		}
		for _, f := range []probe.Feature{probe.Veth, probe.NFT} {
			missing, err := probe.Missing(f)
			if err == nil || !strings.Contains(err.Error(), "not permitted") || !strings.Contains(err.Error(), string(f)) || missing != nil {
				t.Errorf("%s: got %v, %v; want that it cannot be asked", f, missing, err)
			}
		}
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for feature, want := range map[probe.Feature]string{
		probe.Veth: "load module veth",
		probe.VLAN: "load module 8021q",
		probe.NFT:  "CONFIG_NF_TABLES_INET",
		probe.IPv6: "ipv6.disable=1",
		probe.Tun:  "load module tun",

		probe.SELinux:       "security=selinux",
		probe.VLANFiltering: "CONFIG_BRIDGE_VLAN_FILTERING",
		probe.PolicyRules:   "CONFIG_IP_MULTIPLE_TABLES",
		probe.Shaping:       "load modules sch_tbf",
	} {
		if got := feature.Help(); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", feature, got, want)
		}
	}
}

func BenchmarkMissing(b *testing.B) {
	for b.Loop() {
		if _, err := probe.Missing(probe.Veth, probe.Bridge, probe.NFT, probe.IPv6); err != nil {
			b.Fatal(err)
		}
	}
}
