package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/probe"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// forever is the variable with the address that a child process of a test probes until it is killed.
const forever = "TENON_TEST_PROBE"

func TestMain(m *testing.M) {
	if to := os.Getenv(forever); to != "" {
		for {
			if _, err := run(context.Background(), netip.MustParseAddr(to)); err != nil {
				panic(err)
			}
		}
	}
	testnet.Main(m)
}

// run pings an address from the namespace of the thread.
func run(ctx context.Context, to netip.Addr) (*probe.Result, error) {
	h, err := host.Read(ctx, host.Options{OnlyPaths: true})
	if err != nil {
		return nil, err
	}
	return probe.Run(ctx, probe.Flow{Host: h, Source: h.Own(), To: to, Protocol: unix.IPPROTO_ICMP,
		Way: []*host.Namespace{h.Own()}})
}

// silent returns a namespace in which 192.0.2.9 is reachable, but never answers.
func silent(t *testing.T) *testnet.Net {
	t.Helper()
	testnet.Require(t, testnet.Tool("nft"))
	n := testnet.New(t, "peer")
	peer := n.Container("peer")
	n.Host.Batch("link add up0 type veth peer name e0 netns "+peer.Path(), "link set up0 up",
		"addr add 192.0.2.1/24 dev up0")
	peer.Batch("link set e0 up", "addr add 192.0.2.9/24 dev e0")
	peer.Command("nft", "add table ip x; add chain ip x c { type filter hook input priority 0; policy drop; }")
	return n
}

// awaitTable waits until the probe has its table.
func awaitTable(t *testing.T, n *testnet.Net) {
	t.Helper()
	limit := time.Now().Add(testnet.Patience)
	for !strings.Contains(n.Host.Command("nft", "list", "tables"), "tenon_probe_") {
		if time.Now().After(limit) {
			t.Fatal("no table of a probe")
		}
	}
}

// TestCancelled checks that a probe ends at once with its context, and removes its table.
func TestCancelled(t *testing.T) {
	t.Parallel()
	n := silent(t)
	before := testnet.Snapshot(t, n.Spaces())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		failed <- n.Host.Run(func() error {
			_, err := run(ctx, netip.MustParseAddr("192.0.2.9"))
			return err
		})
	}()
	awaitTable(t, n)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("the probe has left:\n%s", diff)
	}
}

// TestKilled checks that the kernel removes the table of a probe that is killed.
func TestKilled(t *testing.T) {
	t.Parallel()
	n := silent(t)
	before := testnet.Snapshot(t, n.Spaces())
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), forever+"=192.0.2.9")
	cmd.Stderr = os.Stderr
	var err error
	n.Host.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	awaitTable(t, n)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); fmt.Sprint(err) != "signal: killed" {
		t.Error(err)
	}
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("the killed probe has left:\n%s", diff)
	}
}

// TestOtherPackets checks that a probe ignores packets that another program traces.
func TestOtherPackets(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("ping"))
	n := silent(t)
	n.Host.Command("nft", "add table ip t; add chain ip t c { type filter hook output priority -600; }; "+
		"add rule ip t c meta nftrace set 1; add chain ip t d { type filter hook output priority 0; }; "+
		"add rule ip t d ip daddr 192.0.2.10 drop; add rule ip t d accept")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan *probe.Result, 1)
	go func() {
		_ = n.Host.Run(func() error {
			r, err := run(ctx, netip.MustParseAddr("192.0.2.9"))
			result <- r
			return err
		})
	}()
	awaitTable(t, n)
	n.Host.Try("ping", "-c", "1", "-W", "1", "192.0.2.10")
	r := <-result
	if r == nil || r.Outcome != probe.Silent || len(r.Seen) != 1 || len(r.Decisions) == 0 {
		t.Fatalf("%+v", r)
	}
	for _, d := range r.Decisions {
		if d.Verdict != "accept" {
			t.Errorf("a decision about another packet: %+v", d)
		}
	}
}
