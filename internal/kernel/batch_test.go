package kernel_test

import (
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
)

// TestCollectInto: a transaction with a batch changes nothing until another one applies the batch,
// also through [kernel.Space.Shared].
func TestCollectInto(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	batch := new(kernel.Batch)
	b.tx.CollectInto(batch)
	must(t, b.host.Rules.Masquerade("first", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24")}))
	must(t, b.host.Shared().Rules.Masquerade("second", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.4/24")}))
	b.unchanged(t, before)
	b.begin(t, t.Context())
	missing, err := b.host.Rules.MissingInBatches(batch)
	must(t, err)
	if len(missing[0]) != 4 {
		t.Errorf("missing: %v, want 4 elements", missing[0])
	}
	applied, err := b.host.Rules.ApplyBatches(batch)
	must(t, err)
	if len(applied[0]) != 4 {
		t.Errorf("missing before the change: %v, want 4 elements", applied[0])
	}
	held, err := b.host.Rules.Held(nft.Masquerading)
	must(t, err)
	if len(held) != 4 {
		t.Errorf("got %v, want 4 elements", held)
	}
	// Another program flushes the rules immediately before the change.
	b.begin(t, t.Context())
	b.tx.Watch(func(string) error { b.Host.Command("nft", "flush", "ruleset"); return nil })
	applied, err = b.host.Rules.ApplyBatches(batch)
	must(t, err)
	if len(applied[0]) != 4 {
		t.Errorf("missing after a flush: %v, want 4 elements", applied[0])
	}
}
