package text_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
)

var result = &cni.Result{
	Interfaces: []cni.Interface{
		{Name: "br0", MAC: "02:00:00:00:00:01"},
		{Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1400, Sandbox: "/run/netns/web"},
	},
	IPs: []cni.IP{
		{Address: netip.MustParsePrefix("10.1.0.2/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
		{Address: netip.MustParsePrefix("fd00::2/64")},
	},
	Routes: []cni.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.1.0.1")},
		{Dst: netip.MustParsePrefix("fd01::/64")},
	},
	DNS: cni.DNS{
		Nameservers: []string{"10.1.0.1", "10.1.0.3"},
		Domain:      "a.b",
		Search:      []string{"c.d", "e.f"},
		Options:     []string{"ndots:5"},
	},
}

func TestResult(t *testing.T) {
	t.Parallel()
	const want = `interface   eth0, MAC 02:00:00:00:00:02, MTU 1400 in /run/netns/web
address     10.1.0.2/24, gateway 10.1.0.1
address     fd00::2/64
route       0.0.0.0/0 via 10.1.0.1
route       fd01::/64
nameserver  10.1.0.1 10.1.0.3
domain      a.b
search      c.d e.f
options     ndots:5
host        br0, MAC 02:00:00:00:00:01
`
	var b strings.Builder
	if err := text.Result(&b, result); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	const want = `NETWORK  CONTAINER  INTERFACE  ADDRESSES         AGE  RUNTIME  STATE
pods     web-1      eth0       10.1.0.2,fd00::2  3m   crio     ok
pods     web-2      net1       -                 5s   -        adding
`
	const wantPools = `NETWORK  CONTAINER  INTERFACE  ADDRESSES         AGE  RUNTIME  STATE   POOLS
pods     web-1      eth0       10.1.0.2,fd00::2  3m   crio     ok      pods4,pods6
pods     web-2      net1       -                 5s   -        adding  -
`
	const wantWide = `NETWORK  CONTAINER  INTERFACE  ADDRESSES         AGE  RUNTIME  STATE   NAMESPACE       PLUGINS         RECORD
pods     web-1      eth0       10.1.0.2,fd00::2  3m   crio     ok      /run/netns/web  bridge,portmap  /var/lib/cni/tenon
pods     web-2      net1       -                 5s   -        adding  -               -               /var/lib/cni/results/pods-web-2-net1
`
	plugins := &cni.List{Plugins: []*cni.PluginConfig{{Type: "bridge"}, {Type: "portmap"}}}
	key := cni.Attachment{Network: "pods", Container: "web-1", IfName: "eth0"}
	other := cni.Attachment{Network: "pods", Container: "web-2", IfName: "net1"}
	list := []inspect.Attachment{
		{
			Record: network.Record{Attachment: key, Result: result, Runtime: "crio",
				List: plugins, Parameters: network.Parameters{Netns: "/run/netns/web"},
				StateDir: "/var/lib/cni/tenon"},
			State: inspect.OK,
			Age:   3 * time.Minute,
		},
		{
			Record: network.Record{Attachment: other,
				Source: "/var/lib/cni/results/pods-web-2-net1"},
			State: inspect.Adding,
			Age:   5 * time.Second,
		},
	}
	pools := map[cni.Attachment][]string{key: {"pods4", "pods6"}}
	var got strings.Builder
	for _, more := range []text.AttachmentColumns{{}, {Pools: pools}, {Wide: true}} {
		if err := text.Attachments(&got, list, more); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want+wantPools+wantWide, got.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
