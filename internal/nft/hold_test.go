package nft_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// holds sets the blocks with their remaining times.
func holds(t *testing.T, c *nft.Conn, left map[string]time.Duration) {
	t.Helper()
	blocks := map[netip.Prefix]time.Duration{}
	for b, d := range left {
		blocks[netip.MustParsePrefix(b)] = d
	}
	must(t, c.SetHolds(context.Background(), blocks))
}

// TestHoldDropsByItself checks that the kernel drops the packets from a block when its time has
// elapsed, and those from other addresses never.
func TestHoldDropsByItself(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root, testnet.Tool("nft"))
	n := testnet.New(t)
	host, a, b := n.Host, n.Container("first"), n.Container("second")
	for i, c := range []*testnet.Namespace{a, b} {
		net := []string{"10.64.1.", "10.64.2."}[i]
		host.Command("ip", "link", "add", c.Name, "type", "veth", "peer", "name", "eth0", "netns", c.Path())
		host.Batch("address add "+net+"1/26 dev "+c.Name, "link set "+c.Name+" up")
		c.Batch("link set lo up", "address add "+net+"2/26 dev eth0", "link set eth0 up",
			"route add default via "+net+"1")
	}
	host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1")
	c, err := nft.Open(testnet.NS(t, host))
	must(t, err)
	defer c.Close()
	holds(t, c, nil) // builds nothing
	if out := host.Command("nft", "list", "ruleset"); out != "" {
		t.Fatalf("without blocks:\n%s", out)
	}
	to := netip.MustParseAddr("10.64.2.2")
	testnet.Reaches(t, a, to, true)
	holds(t, c, map[string]time.Duration{"10.64.1.0/26": time.Hour, "fd00:1::/122": time.Hour})
	testnet.Reaches(t, a, to, true)
	const short = 2 * time.Second
	holds(t, c, map[string]time.Duration{"10.64.1.0/26": short, "fd00:1::/122": time.Hour})
	testnet.Eventually(t, func() error {
		if strings.Contains(host.Command("nft", "list", "set", "inet", "tenon", "held4"), "elements") {
			return errors.New("the element has not ended")
		}
		return nil
	})
	testnet.Reaches(t, a, to, false)
	testnet.Reaches(t, host, to, true) // other addresses
	holds(t, c, map[string]time.Duration{"10.64.1.0/26": time.Hour})
	testnet.Reaches(t, a, to, true)
	holds(t, c, map[string]time.Duration{"10.64.1.0/26": 0})
	testnet.Reaches(t, a, to, false)
	holds(t, c, nil)
	testnet.Reaches(t, a, to, true)
	if list, err := c.All(); err != nil || len(list) != 0 {
		t.Errorf("elements with owners: %v, %v", list, err)
	}
}
