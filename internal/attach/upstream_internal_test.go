package attach

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// TestUpstreamNames compares with names that the upstream plugins generate. portmap uses another
// form, with a prefix.
func TestUpstreamNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ network, container, chain string }{
		{"test", "1234", "CNI-2bbe0c48b91a7d1b8a6753a8"},
		{"testalongnamethatdoesnotmakesense", "1234", "CNI-374f33fe84ab0ed84dcdebe3"},
		{"net1", "cid1", "CNI-e8f6f419596f7f47b3468487"},
	} {
		m := iptablesMasquerade(row.network, row.container)
		if m.Chain != row.chain || len(m.Chain) != 28 {
			t.Errorf("%s, %s: chain %s, want %s", row.network, row.container, m.Chain, row.chain)
		}
		if other := iptablesMasquerade(row.network, row.container+"5"); other.Chain == m.Chain {
			t.Errorf("two containers with chain %s", m.Chain)
		}
		if c, ok := iptablesContainer(row.network, m.Comment); c != row.container || !ok {
			t.Errorf("comment %s: container %q, %t", m.Comment, c, ok)
		}
	}
	if got, want := iptablesMasquerade("net1", "cid1").Comment, `name: "net1" id: "cid1"`; got != want {
		t.Errorf("comment %s, want %s", got, want)
	}
	for _, comment := range []string{"", `name: "net1" id: "`, `name: "net12" id: "c"`, `name: "net1" id: c`} {
		if c, ok := iptablesContainer("net1", comment); ok {
			t.Errorf("comment %s names container %q of net1", comment, c)
		}
	}
	for _, row := range []struct {
		attachment cni.Attachment
		begins     string
	}{
		{cni.Attachment{Network: "unit-test", Container: "one", IfName: "eth0"}, "6fd94d501e58f0aa-287fc69eff0574a2"},
		{cni.Attachment{Network: "net1", Container: "cid1", IfName: "eth0"}, "8e48f37d5de60467-0b65a318f52e521b"},
	} {
		if got := upstreamOwner(row.attachment); got != row.begins {
			t.Errorf("%v: comment begins with %s, want %s", row.attachment, got, row.begins)
		}
	}
}
