package topology

import (
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/nat"
)

// TestCovers decides which rules of other programs replace a missing element of Tenon.
func TestCovers(t *testing.T) {
	t.Parallel()
	b := &builder{m: &Map{}, spaces: []*space{{Namespace: &host.Namespace{ID: "4:1"}}}}
	for name, uplink := range map[string]bool{"up0": true, "cni0": false} {
		b.m.Nodes = append(b.m.Nodes, &Node{Kind: Interface, Namespace: "4:1", Name: name,
			Device: &Device{Uplink: uplink}})
	}
	container := netip.MustParsePrefix("10.77.0.2/24")
	network := netip.MustParseAddr("10.77.0.0")
	for _, row := range []struct {
		name string
		rule nat.Translation
		want bool
	}{
		{"the network, with a condition", nat.Translation{Kind: nat.Masquerade, Source: network,
			Conditional: true}, true},
		{"another network", nat.Translation{Kind: nat.Masquerade,
			Source: netip.MustParseAddr("172.17.0.0")}, false},
		{"any source, through an uplink", nat.Translation{Kind: nat.Masquerade, Out: "up0"}, true},
		{"any source, through a bridge", nat.Translation{Kind: nat.Masquerade, Out: "cni0"}, false},
		{"any source", nat.Translation{Kind: nat.Masquerade}, true},
		{"marked packets of kube-proxy", nat.Translation{Kind: nat.Masquerade, Conditional: true}, false},
		{"a port", nat.Translation{Kind: nat.Port}, false},
		{"an element of Tenon for another container", nat.Translation{Kind: nat.Masquerade,
			Tenon: true}, false},
	} {
		if got := b.covers(row.rule, container); got != row.want {
			t.Errorf("%s: %t", row.name, got)
		}
	}
}
