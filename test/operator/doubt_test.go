package operator

import (
	"cmp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestDoubts checks that an object that cannot be evaluated is named, and that the answer is then not
// "delivered".
func TestDoubts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, create string
		flow         string // from web to outside if empty
		needs        kernel.Feature
		change       func(n *node, own *host.Namespace) // of the state of the host
		verdict      why.Verdict
		want         string // a part of a doubt, an assumption or a cause
	}{
		{name: "IPsec", create: `ip xfrm policy add src 10.77.0.0/24 dst 203.0.113.0/24 dir fwd \
			tmpl src 192.0.2.1 dst 192.0.2.9 proto esp mode tunnel`, verdict: why.Unknown,
			want: "IPsec policy 10.77.0.0/24 -> 203.0.113.0/24 (fwd)"},
		{name: "IPsec blocks", create: `ip xfrm policy add src 10.77.0.0/24 dst 203.0.113.0/24 dir fwd action block`,
			verdict: why.Stopped, want: "IPsec policy 10.77.0.0/24 -> 203.0.113.0/24 (fwd) on the host drops"},
		{name: "IPsec of others", create: `ip xfrm policy add src 10.78.0.0/24 dst 203.0.113.0/24 dir fwd action block`,
			verdict: why.Delivered},
		{name: "tc", needs: kernel.FeatureShaping, create: `tc qdisc add dev $VETH clsact
			tc filter add dev $VETH ingress protocol ip u32 match ip dst 203.0.113.9/32 flowid 2:1`,
			verdict: why.Unknown, want: "filters of tc at ingress of veth"},
		{name: "a qdisc", needs: kernel.FeatureShaping,
			create: `tc qdisc add dev $VETH root tbf rate 1mbit burst 10k latency 50ms`, flow: "outside 192.0.2.1:8080",
			verdict: why.Unknown, want: "qdisc tbf of veth"},
		{name: "a chain at a link", create: `nft 'add table netdev own
			add chain netdev own in { type filter hook ingress device "'$VETH'" priority 0; }'`,
			verdict: why.Unknown, want: "chain netdev own in at veth"},
		{name: "NOARP", create: `web ip link set eth0 arp off`, verdict: why.Unknown, want: "has NOARP"},
		{name: "a full queue", change: func(n *node, _ *host.Namespace) { n.waiting = 3 },
			verdict: why.Unknown, want: "3 connections wait"},
		{name: "XDP", change: func(_ *node, own *host.Namespace) { own.LinkByName("up0").XDP = true },
			verdict: why.Unknown, want: "XDP program of up0"},
		{name: "tcx", change: func(_ *node, own *host.Namespace) {
			own.LinkByName("up0").Filters = []host.Filter{{Hook: "egress", Text: "a program", Opaque: true}}
		}, verdict: why.Unknown, want: "a program at egress of up0"},
		{name: "Open vSwitch", change: func(n *node, own *host.Namespace) {
			own.Links = append(own.Links, host.Link{Index: 1000, Name: "ovs-system", Kind: "openvswitch"})
			own.LinkByName(n.veths["web"]).Master = 1000
		}, verdict: why.Unknown, want: "port of Open vSwitch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.needs != "" {
				testnet.Require(t, testnet.Kernel(row.needs))
			}
			n := newNode(t)
			n.shell(row.create)
			places, q := n.question(cmp.Or(row.flow, `web 203.0.113.9:9000`))
			if row.change != nil {
				row.change(n, places.Host.Own())
			}
			r, err := places.Explain(q)
			if err != nil {
				t.Fatal(err)
			}
			text := describe(r) + strings.Join(r.Doubts, "\n")
			if r.Verdict != row.verdict || !strings.Contains(text, row.want) {
				t.Error(text)
			}
		})
	}
}
