package ptp_test

import (
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestDelegatePrefix: the node reaches every address of the prefix that the container assigns, and
// packets to the others do not circulate. CHECK requires the route, and DEL removes it.
func TestDelegatePrefix(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"delegatePrefix":true`+static(`{"address":"10.1.2.2/24","gateway":"10.1.2.1"},`+
		`{"address":"fd00:7::2/64","gateway":"fd00:7::1"}`,
		`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`))
	before := routes(r.Host, "-6")
	r.Add("c")
	r.Check("c")
	c := r.Container("c")
	compare(t, "host, IPv6", []string{
		"fd00:7::1 dev HOSTEND metric 256",
		"fd00:7::2 dev HOSTEND metric 1024",
		"fd00:7::/64 via fd00:7::2 dev HOSTEND metric 1024",
	}, routes(r.Host, "-6"))
	compare(t, "host, IPv4", []string{"10.1.2.2 dev HOSTEND scope host"}, routes(r.Host, "-4"))
	further := netip.MustParseAddr("fd00:7::5:6")
	c.Command("ip", "address", "add", further.String()+"/128", "dev", "lo", "nodad")
	c.Command("ip", "link", "set", "lo", "up")
	testnet.Reaches(t, r.Host, further, true)
	testnet.Reaches(t, r.Host, netip.MustParseAddr("fd00:7::99"), false)

	r.Host.Command("ip", "-6", "route", "delete", "fd00:7::/64")
	plugintest.Says(t, r.Refused(r.Request(cni.Check, "c"), cni.CodeInternal), "fd00:7::/64")
	r.Del("c")
	compare(t, "host after DEL", before, routes(r.Host, "-6"))
}

// TestDelegateSharedPrefix: a network that another container has is not delegated.
func TestDelegateSharedPrefix(t *testing.T) {
	t.Parallel()
	const members = `,"delegatePrefix":true,"ipam":{"type":"host-local","subnet":"fd00:7::/64"}`
	r := runtime(t, members)
	r.Add("c")
	before := routes(r.Host, "-6")
	e := r.Refused(r.Request(cni.Add, "d"), cni.CodeInvalidConfig)
	plugintest.Says(t, e, "delegatePrefix: network fd00:7::/64 already has the route")
	compare(t, "host", before, routes(r.Host, "-6"))
	r.Check("c")
}
