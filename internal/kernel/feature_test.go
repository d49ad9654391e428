package kernel_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMissingAgreesWithTools: Missing reports exactly the features that the tools cannot use.
func TestMissingAgreesWithTools(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("ip"), testnet.Tool("nft"), testnet.Tool("tc"))
	n := testnet.New(t)
	n.Host.Command("ip", "link", "add", "lower", "type", "veth", "peer", "name", "other")
	for feature, command := range map[kernel.Feature]string{
		kernel.FeatureVeth:    "ip link add test type veth",
		kernel.FeatureBridge:  "ip link add test type bridge",
		kernel.FeatureMacvlan: "ip link add test link lower type macvlan",
		kernel.FeatureIPvlan:  "ip link add test link lower type ipvlan",
		kernel.FeatureVLAN:    "ip link add test link lower type vlan id 7",
		kernel.FeatureDummy:   "ip link add test type dummy",
		kernel.FeatureVRF:     "ip link add test type vrf table 7",
		kernel.FeatureIFB:     "ip link add test type ifb",
		kernel.FeatureTun:     "ip tuntap add mode tap name test",
		kernel.FeatureNFT:     "nft add table inet test",
		kernel.FeatureIPv6:    "ip -6 addr add fd00::1/64 dev lower",

		kernel.FeatureVLANFiltering: "ip link add test type bridge vlan_filtering 1",
		kernel.FeaturePolicyRules:   "ip rule add from 10.1.2.3 lookup 100",
		kernel.FeatureShaping:       "tc qdisc add dev lower root tbf rate 1mbit burst 10k latency 1ms",
	} {
		scratch := n.Container(string(feature))
		scratch.Command("ip", "link", "add", "lower", "type", "veth", "peer", "name", "other")
		var missing []kernel.Feature
		var err error
		scratch.Do(func() { missing, err = kernel.Missing(feature) })
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
	missing, err := kernel.Missing("nosuchkind", kernel.FeatureVeth)
	if want := []kernel.Feature{"nosuchkind"}; err != nil || !slices.Equal(missing, want) {
		t.Errorf("got %v, %v; want %v", missing, err, want)
	}
}

func TestMissingChangesNothing(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	before := testnet.Snapshot(t, n.Spaces())
	n.Host.Do(func() {
		if _, err := kernel.Missing(kernel.FeatureVeth, kernel.FeatureBridge, kernel.FeatureDummy, kernel.FeatureNFT, kernel.FeatureIPv6, kernel.FeatureTun, kernel.FeatureSELinux, kernel.FeatureVLANFiltering, kernel.FeaturePolicyRules, kernel.FeatureShaping); err != nil {
			t.Error(err)
		}
	})
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("state has changed:\n%s", diff)
	}
}

// TestMissingWithoutPrivilege: without privilege, Missing returns an error with the reason instead
// of reporting features as missing. Masquerading does not choose its backend by asking: it
// is nftables unless the configuration says iptables.
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
		for _, f := range []kernel.Feature{kernel.FeatureVeth, kernel.FeatureNFT} {
			missing, err := kernel.Missing(f)
			if err == nil || !strings.Contains(err.Error(), "not permitted") || !strings.Contains(err.Error(), string(f)) || missing != nil {
				t.Errorf("%s: got %v, %v; want an error", f, missing, err)
			}
		}
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for feature, want := range map[kernel.Feature]string{
		kernel.FeatureVeth: "load module veth",
		kernel.FeatureVLAN: "load module 8021q",
		kernel.FeatureNFT:  "CONFIG_NF_TABLES_INET",
		kernel.FeatureIPv6: "ipv6.disable=1",
		kernel.FeatureTun:  "load module tun",

		kernel.FeatureSELinux:       "security=selinux",
		kernel.FeatureVLANFiltering: "CONFIG_BRIDGE_VLAN_FILTERING",
		kernel.FeaturePolicyRules:   "CONFIG_IP_MULTIPLE_TABLES",
		kernel.FeatureShaping:       "load modules sch_tbf",
	} {
		if got := feature.Help(); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", feature, got, want)
		}
	}
}

func BenchmarkMissing(b *testing.B) {
	for b.Loop() {
		if _, err := kernel.Missing(kernel.FeatureVeth, kernel.FeatureBridge, kernel.FeatureNFT, kernel.FeatureIPv6); err != nil {
			b.Fatal(err)
		}
	}
}
