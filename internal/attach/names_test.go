package attach_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// TestHostName pins the name of the host-side veth: it must never change, because DEL finds the
// veths of running containers by name.
func TestHostName(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	const want = "vethk25jlst4h6r"
	link := b.add().Interfaces[0].Name
	if link != want {
		t.Errorf("%s, want %s", link, want)
	}
	a := cni.Attachment{Network: "net", Container: "c-1", IfName: "eth0"}
	if out := b.Host.Command("ip", "link", "show", "dev", link); !strings.Contains(out, "alias "+a.Tag()) {
		t.Errorf("link is not marked with %q: %s", a.Tag(), out)
	}
}

// TestHostNames: the names in a network share a prefix, and each attachment has its own.
func TestHostNames(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	seen := map[string]bool{}
	prefix := b.add().Interfaces[0].Name[:7]
	delete(b.conf, "prevResult")
	for i := range 3 {
		env := b.env(cni.Add)
		env.IfName = fmt.Sprintf("net%d", i)
		out, err := b.serve(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		r, err := cni.DecodeResult(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		name := r.Interfaces[0].Name
		if seen[name] || len(name) != 15 || !strings.HasPrefix(name, prefix) {
			t.Errorf("host-side veth is %s, want %s… with 15 bytes", name, prefix)
		}
		seen[name] = true
	}
}
