package events_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/host/events"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// open opens a source in a host that accepts everything. The lock of legacy iptables is a file of
// the test.
func open(t *testing.T, n *testnet.Net, change func(*events.Options)) *events.Source {
	t.Helper()
	o := events.Options{
		Relevant: func(*events.Loss) bool { return true },
		Tables:   func(events.Table) bool { return true },
	}
	if change != nil {
		change(&o)
	}
	s, err := events.Open(t.Context(), testnet.NS(t, n.Host), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// collect takes batches until one is wanted.
func collect(t *testing.T, s *events.Source, wanted func(events.Batch) bool) {
	t.Helper()
	var all []events.Batch
	testnet.Eventually(t, func() error {
		b, err := s.Take()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
		if wanted(b) {
			return nil
		}
		return fmt.Errorf("received: %+v", all)
	})
}

// TestOverrun: if changes come faster than they are read, the kernel drops messages (ENOBUFS). The
// source reports that, and then continues.
func TestOverrun(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	n.Host.Command("ip", "link", "add", "br0", "type", "bridge")
	s := open(t, n, func(o *events.Options) { o.Buffer = 4096 })
	var flood []string
	for i := range 2000 {
		flood = append(flood, fmt.Sprintf("address add 10.9.%d.%d/32 dev br0", i/250, i%250+1))
	}
	n.Host.Batch(flood...)
	n.Host.Batch("address flush dev br0")
	collect(t, s, func(b events.Batch) bool { return b.Overrun })
	change := func() {
		n.Host.Batch("link add br1 type bridge", "link delete br1")
	}
	change()
	collect(t, s, func(b events.Batch) bool {
		if b.Overrun { // the flood had not ended
			change()
		}
		return slices.ContainsFunc(b.Notices, func(notice events.Notice) bool {
			l := notice.Loss
			return l != nil && l.Deleted && l.Object == "link br1"
		})
	})
}

// TestLegacy: a table of legacy iptables that shrinks is noticed when the program closes its lock.
func TestLegacy(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-legacy"))
	n := testnet.New(t)
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	iptables := func(arguments string) {
		n.Host.Command("env", append([]string{"XTABLES_LOCKFILE=" + lock, "iptables-legacy", "--wait"},
			strings.Fields(arguments)...)...)
	}
	iptables("-t nat -A POSTROUTING -j MASQUERADE")
	s := open(t, n, func(o *events.Options) { o.LegacyLock = lock })
	iptables("-t nat -A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE")
	iptables("-t nat -S")
	if b, err := s.Take(); err != nil || len(b.Notices) > 0 {
		t.Errorf("notices of added rules: %+v, %v", b, err)
	}
	iptables("-t nat -F")
	collect(t, s, func(b events.Batch) bool {
		for _, notice := range b.Notices {
			if l := notice.Legacy; l != nil && l.Name == "nat" && l.Family.String() == "ip" {
				return true
			}
		}
		return false
	})
}
