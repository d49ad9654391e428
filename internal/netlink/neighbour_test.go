package netlink_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestAnswersAtOnce: probes of the same address do not mislead each other: each one deletes the
// neighbour entry, and the kernel reports a deleted entry as failed.
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	inside := n.Container("c")
	n.Host.Command("ip", "link", "add", "w0", "type", "veth", "peer", "name", "eth0", "netns",
		inside.Path())
	inside.Batch("address add 10.1.0.2/24 dev eth0", "link set eth0 up")
	n.Host.Batch("address add 10.1.0.1/24 dev w0", "link set w0 up")
	addr := netip.MustParseAddr("10.1.0.2")
	testnet.Reaches(t, n.Host, addr, true)
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	const probes, rounds = 8, 100
	var wg sync.WaitGroup
	for range probes {
		c := open(t, n.Host)
		l, err := c.Links.ByName("w0")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range rounds {
				if answers, err := c.Addrs.Answers(ctx, l, addr); err != nil || !answers {
					t.Errorf("answers: %v, %v", answers, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
