package bridge_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestDefaultVLAN: an access port receives frames of the default VLAN only with
// preserveDefaultVlan, and its own frames never reach that VLAN.
func TestDefaultVLAN(t *testing.T) {
	t.Parallel()
	for _, preserve := range []bool{false, true} {
		t.Run(fmt.Sprint(preserve), func(t *testing.T) {
			t.Parallel()
			r := vlanRuntime(t, fmt.Sprintf(`,"vlan":100,"preserveDefaultVlan":%t`, preserve))
			access := hardwareAddress(t, r.Add("access").Interfaces[2].MAC)
			peer := hardwareAddress(t, r.Add("peer").Interfaces[2].MAC)
			r.Conf["vlan"] = 0
			plain := hardwareAddress(t, r.Add("plain").Interfaces[2].MAC)
			last := hardwareAddress(t, r.Add("last").Interfaces[2].MAC)
			// When the last frame has arrived, all earlier ones have arrived or are lost.
			heard := func(by string, senders ...sender) []string {
				f := openFrames(t, r.Container(by))
				var payloads []string
				for _, s := range senders {
					payloads = append(payloads, "from "+s.container)
					openFrames(t, r.Container(s.container)).send(t, s.mac, 0, "from "+s.container)
				}
				return f.receive(t, payloads...)
			}
			want := []string{"from peer"}
			if preserve {
				want = []string{"from plain", "from peer"}
			}
			if got := heard("access", sender{"plain", plain},
				sender{"peer", peer}); !slices.Equal(got, want) {
				t.Errorf("access port hears %q, want %q", got, want)
			}
			if got, want := heard("plain", sender{"access", access},
				sender{"last", last}), []string{"from last"}; !slices.Equal(got, want) {
				t.Errorf("default VLAN hears %q, want %q", got, want)
			}
		})
	}
}

// sender is a container with its MAC address.
type sender struct {
	container string
	mac       net.HardwareAddr
}

// TestVLANPortIsolation: isolated ports of one VLAN do not reach each other, but they reach their
// gateway and ports without isolation.
func TestVLANPortIsolation(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, vlanGateway+`,"portIsolation":true`)
	a, b := r.Add("a"), r.Add("b")
	delete(r.Conf, "portIsolation")
	open := r.Add("open")
	for i, ip := range a.IPs {
		testnet.Reaches(t, r.Container("a"), b.IPs[i].Address.Addr(), false)
		testnet.Reaches(t, r.Container("a"), ip.Gateway, true)
		testnet.Reaches(t, r.Container("a"), open.IPs[i].Address.Addr(), true)
		testnet.Reaches(t, r.Container("open"), b.IPs[i].Address.Addr(), true)
	}
}

// TestVLANMasquerade: containers behind the gateway of a VLAN are masqueraded like those behind a
// bridge. br_netfilter is off, because it masquerades packets on the way to the gateway's port, and
// they do not reach it then.
func TestVLANMasquerade(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, `,"isDefaultGateway":true,"ipMasq":true,"vlan":100`+ipamDual)
	r.Host.Command("sysctl", "-eqw", "net.bridge.bridge-nf-call-iptables=0",
		"net.bridge.bridge-nf-call-ip6tables=0")
	r.Add("a")
	r.Add("b")
	r.Check("a")
	testnet.CheckSources(t, r.Net, "a", "b", true)
}

// TestVLANUplink: a link that carries two tagged VLANs connects the bridges of two hosts, as a
// switch would. Containers reach their VLAN on the other host, and a trunk reaches both.
func TestVLANUplink(t *testing.T) {
	t.Parallel()
	hosts := []*plugintest.Runtime{vlanRuntime(t, `,"vlan":100`), vlanRuntime(t, `,"vlan":100`)}
	address := func(vlan, host, container int) string {
		return fmt.Sprintf("10.%d.%d.%d", vlan, host, container)
	}
	for i, r := range hosts {
		for j, vlan := range []int{100, 200} {
			container := fmt.Sprint("c", vlan)
			r.Conf["vlan"] = vlan
			r.Add(container)
			r.Container(container).Command("ip", "address", "add", address(100, i, j+1)+"/16",
				"dev", "eth0")
		}
		r.Conf["vlan"], r.Conf["vlanTrunk"] = 0, []any{map[string]any{"minID": 100, "maxID": 200}}
		r.Add("trunk")
		r.Container("trunk").
			Batch("link add tagged link eth0 up type vlan id 200",
				"address add "+address(100, i, 9)+"/16 dev tagged")
	}
	hosts[0].Host.Command("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "uplink",
		"netns", hosts[1].Host.Path())
	for _, r := range hosts {
		r.Host.Command("ip", "link", "set", "uplink", "master", "br0", "up")
		r.Host.Command("bridge", "vlan", "del", "dev", "uplink", "vid", "1")
		for _, id := range []string{"100", "200"} {
			r.Host.Command("bridge", "vlan", "add", "dev", "uplink", "vid", id)
		}
	}
	for _, row := range []struct {
		from string
		to   int // container on the other host
		want bool
	}{
		{"c100", 1, true}, {"c200", 2, true}, {"c100", 2, false}, {"c200", 1, false},
		{"c200", 9, true}, {"c100", 9, false}, {"trunk", 2, true}, {"trunk", 9, true}, {"trunk", 1,
			false},
	} {
		for i, r := range hosts {
			testnet.Reaches(t, r.Container(row.from),
				netip.MustParseAddr(address(100, 1-i, row.to)), row.want)
		}
	}
}

// TestForgedTaggedFrames: macspoofchk applies to the tagged frames of a trunk.
func TestForgedTaggedFrames(t *testing.T) {
	t.Parallel()
	r := vlanRuntime(t, guarded+`,"vlan":100,"vlanTrunk":[{"id":200}]`)
	own := hardwareAddress(t, r.Add("guarded").Interfaces[2].MAC)
	r.Add("witness")
	r.Check("guarded")
	sends, witness := openFrames(t, r.Container("guarded")), openFrames(t, r.Container("witness"))
	for _, vlan := range []uint16{0, 200} {
		forged, honest := fmt.Sprintf("forged in VLAN %d.", vlan), fmt.Sprintf("honest in VLAN %d.",
			vlan)
		sends.send(t, net.HardwareAddr{2, 0, 0, 0, 0, 1}, vlan, forged)
		sends.send(t, own, vlan, honest)
		if got := witness.receive(t, forged, honest); !slices.Equal(got, []string{honest}) {
			t.Errorf("witness sees %q, want %q alone", got, honest)
		}
	}
	unknown := "of a VLAN that is not the trunk's."
	sends.send(t, own, 300, unknown)
	sends.send(t, own, 200, "the end.")
	if got := witness.receive(t, unknown, "the end."); !slices.Equal(got, []string{"the end."}) {
		t.Errorf("witness sees %q", got)
	}
}
