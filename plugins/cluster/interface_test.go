package cluster_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
)

// named returns the plugin with a name.
func named(t testing.TB, name string) plugin.Definition {
	t.Helper()
	at := slices.IndexFunc(all.Plugins, func(d plugin.Definition) bool { return d.Name == name })
	if at < 0 {
		t.Fatalf("no plugin %s", name)
	}
	return all.Plugins[at]
}

// ipam returns the ipam section of a pool.
func (n *node) ipam(pool, more string) string {
	return fmt.Sprintf(`"ipam":{"type":"cluster","pool":%q,"dir":%q,"socket":%q%s}`, pool, n.dir,
		n.socket, more)
}

// Containers of two blocks reach each other through one bridge, and the bridge has the gateways of
// both.
func TestBridgeWithTwoBlocks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	r := plugintest.NewRuntime(t, named(t, "bridge"), `{"cniVersion":"1.1.0","name":"pods",`+
		`"type":"bridge","bridge":"br0","isDefaultGateway":true,"multipleGateways":true,`+
		n.ipam("pods", "")+`}`)
	first := r.Add("c1").IPs[0]
	n.prepare("pods", func(s *local.State) {
		s.Blocks[0].Phase = local.Returning
		grow(s)
	})
	second := r.Add("c2").IPs[0]
	if first.Address.String() != "10.64.0.2/26" || second.Address.String() != "10.64.0.66/26" {
		t.Errorf("addresses %s and %s", first.Address, second.Address)
	}
	for c, other := range map[string]netip.Addr{"c1": second.Address.Addr(),
		"c2": first.Address.Addr()} {
		r.Check(c)
		for _, to := range []netip.Addr{first.Gateway, second.Gateway, other} {
			testnet.Reaches(t, r.Container(c), to, true)
		}
	}
	r.Del("c1")
	r.Del("c2")
	n.wantLeases()
}

// Containers with a prefix each use any address of it, and reach each other.
func TestPtpWithPrefixes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.agent.serve(t, n.socket)
	r := plugintest.NewRuntime(t, named(t, "ptp"), `{"cniVersion":"1.1.0","name":"prefixes",`+
		`"type":"ptp","delegatePrefix":true,`+n.ipam("prefixes", `,"routes":[{"dst":"::/0"}]`)+`}`)
	var further []netip.Addr
	for i, c := range []string{"c1", "c2"} {
		ip := r.Add(c).IPs[0]
		if want := fmt.Sprintf("fd00:66:0:%x::2/64", i); ip.Address != netip.MustParsePrefix(want) {
			t.Errorf("%s has %s, want %s", c, ip.Address, want)
		}
		a := netip.MustParseAddr(fmt.Sprintf("fd00:66:0:%x::cafe", i))
		r.Container(c).Command("ip", "address", "add", a.String()+"/128", "dev", "lo", "nodad")
		r.Container(c).Command("ip", "link", "set", "lo", "up")
		further = append(further, a)
	}
	testnet.Reaches(t, r.Container("c1"), further[1], true)
	testnet.Reaches(t, r.Container("c2"), further[0], true)
	r.Check("c1")
	r.Must(r.Request(cni.Status, "c1"))
	r.Del("c1")
	testnet.Reaches(t, r.Container("c2"), further[0], false)
	n.wantLeases("prefixes fd00:66:0:1:: c2")
}
