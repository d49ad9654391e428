package attach_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// scripted is an IPAM plugin with a definition.
type scripted struct {
	plugin.Common
	IPAM any `json:"ipam"` // hides the field of plugins that delegate
	del  func()
}

func (*scripted) Check(context.Context, *plugin.Call) error { return nil }

func (*scripted) Add(context.Context, *plugin.Call) (*cni.Result, error) {
	ip := cni.IP{Address: mustPrefix("10.0.0.2/24"), Gateway: mustPrefix("10.0.0.1/32").Addr()}
	return &cni.Result{IPs: []cni.IP{ip}}, nil
}

func (s *scripted) Del(context.Context, *plugin.Call) error {
	s.del()
	return nil
}

// TestDelOrder is R-34: IPAM releases the address when no interface has it any more. An IPAM plugin
// with a definition that does not declare NeedsLink releases the address when the link no longer
// exists. An IPAM plugin without a definition may need the link, which is still up then.
func TestDelOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		caller func(b *bench, del func()) invoke.Caller
		link   bool // at the time of the release
	}{
		{"known", func(_ *bench, del func()) invoke.Caller {
			pool := plugin.Info{Name: "pool", Role: plugin.RoleIPAM}
			return plugin.Linked{Plugins: []plugin.Definition{
				plugin.Define(pool, func() plugin.Plugin { return &scripted{del: del} }),
			}}
		}, false},
		{"unknown", func(b *bench, del func()) invoke.Caller {
			b.ipam.Caller = invoke.Fake{"pool": verbs{
				cni.Add: invoke.Print(`{"cniVersion":"1.1.0",` + address + `}`),
				cni.Del: func(context.Context, invoke.Call) ([]byte, bool) {
					del()
					return nil, true
				},
			}}
			return &b.ipam
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, verbs{})
			b.conf["masq"] = true
			var link, then string
			caller := tt.caller(b, func() {
				link = b.inside("ip", "-br", "link")
				then = b.inside("ip", "addr") + b.Host.Command("nft", "list", "ruleset")
			})
			for _, verb := range []cni.Command{cni.Add, cni.Del} {
				stdin, err := json.Marshal(b.conf)
				if err != nil {
					t.Fatal(err)
				}
				b.Host.Do(func() { _, err = b.plugin.Serve(t.Context(), b.env(verb), stdin, caller) })
				if err != nil {
					t.Fatal(err)
				}
				rules := b.Host.Command("nft", "list", "ruleset")
				if verb == cni.Add && !strings.Contains(rules, "10.0.0.2") {
					t.Fatalf("nothing is masqueraded: %s", rules)
				}
			}
			if up := strings.Contains(link, "LOWER_UP") && strings.Contains(link, "eth0"); up != tt.link {
				t.Errorf("links when the address was released: %s", link)
			}
			if !tt.link && strings.Contains(link, "eth0") {
				t.Errorf("the link was there when the address was released: %s", link)
			}
			if strings.Contains(then, "10.0.0.2") || then == "" {
				t.Errorf("when the address was released there was: %s", then)
			}
		})
	}
}

// TestDelContinuesPastErrors: DEL tries each part and reports all errors (PL-DEL-06, DLG-06).
func TestDelContinuesPastErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{
		cni.Add: invoke.Print(`{"cniVersion":"1.1.0",` + address + `}`),
		cni.Del: invoke.Fail(cni.Errorf(cni.CodeIOFailure, "disk is full")),
	})
	before := b.state()
	b.add()
	wantError(t, b.call(cni.Del), cni.CodeIOFailure, "disk is full")
	b.unchanged(before)
}

// TestDelOfUnreadablePath is PL-DEL-03: DEL treats a namespace that cannot be opened as gone, with
// a warning.
func TestDelOfUnreadablePath(t *testing.T) {
	t.Parallel()
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, pair{}, give(address))
	before := b.state()
	b.add()
	env := b.env(cni.Del)
	env.Netns = loop
	if _, err := b.serve(t.Context(), env); err != nil {
		t.Error(err)
	}
	b.unchanged(before)
	if b.asked() != "ADD DEL" {
		t.Errorf("IPAM was asked to %s, want ADD DEL", b.asked())
	}
}

// TestWithoutNFT: DEL and GC succeed on a kernel without nftables.
func TestWithoutNFT(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, give(address))
	before := b.state()
	b.add()
	b.plugin = b.plugin.Watched(func(op string) error {
		if strings.Contains(op, "masquerade") {
			return kernel.ErrNoNFT
		}
		return nil
	})
	if _, err := b.serve(t.Context(), b.env(cni.Del)); err != nil {
		t.Errorf("DEL: %v", err)
	}
	b.unchanged(before)
	b.conf["cni.dev/valid-attachments"] = []any{}
	if _, err := b.serve(t.Context(), b.env(cni.GC)); err != nil {
		t.Errorf("GC: %v", err)
	}
}

// TestForeignLink: DEL keeps an interface that another container owns, whatever its name, and GC
// keeps an interface of another network.
func TestForeignLink(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	b.add()
	before := b.state()
	env := b.env(cni.Del)
	env.ContainerID = "another"
	for _, network := range []string{"net", "another"} {
		b.conf["name"] = network
		if _, err := b.serve(t.Context(), env); err != nil {
			t.Error(err)
		}
		b.unchanged(before)
	}
	b.conf["cni.dev/valid-attachments"] = []any{}
	if err := b.call(cni.GC); err != nil {
		t.Error(err)
	}
	b.unchanged(before)
}

// TestRenamedNetwork is PL-DEL-10: the administrator has renamed the network of a running
// container, and DEL under the new name removes the interface and its rules.
func TestRenamedNetwork(t *testing.T) {
	t.Parallel()
	for _, masq := range []bool{false, true} {
		b := newBench(t, pair{}, give(address))
		b.conf["masq"] = masq
		b.add() // leaves the skeleton of the rule set behind
		if err := b.call(cni.Del); err != nil {
			t.Error(err)
		}
		delete(b.conf, "prevResult")
		before := b.state()
		b.add()
		b.conf["name"] = "renamed"
		if err := b.call(cni.Del); err != nil {
			t.Error(err)
		}
		b.unchanged(before)
	}
}

// TestLinkWithoutOwner: DEL deletes an interface without an owner, which an upstream plugin created
// before the migration to Tenon.
func TestLinkWithoutOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	before := b.state()
	b.inside("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "vethdeadbeef", "netns", b.Host.Path())
	if err := b.call(cni.Del); err != nil {
		t.Error(err)
	}
	b.unchanged(before)
}

// TestNamesake: DEL and GC keep a link with the name of a host-side veth that they do not own.
func TestNamesake(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	name := b.add().Interfaces[0].Name
	if err := b.call(cni.Del); err != nil {
		t.Fatal(err)
	}
	b.Host.Command("ip", "link", "add", name, "type", "bridge")
	before := b.state()
	if err := b.call(cni.Del); err != nil {
		t.Error(err)
	}
	b.conf["cni.dev/valid-attachments"] = []any{}
	if err := b.call(cni.GC); err != nil {
		t.Error(err)
	}
	b.unchanged(before)
	wantError(t, b.call(cni.Add), plugin.CodeInUse, name, "exists")
	b.unchanged(before)
}

// TestGCContinuesPastErrors: DIS-30, DLG-06, PL-GC-04, PL-GC-05
func TestGCContinuesPastErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{
		cni.Add: invoke.Print(`{"cniVersion":"1.1.0",` + address + `}`),
		cni.GC:  invoke.Fail(cni.Errorf(cni.CodeIOFailure, "disk is full")),
	})
	before := b.state()
	b.add()
	b.conf["cni.dev/valid-attachments"] = []any{}
	wantError(t, b.call(cni.GC), cni.CodeIOFailure, "disk is full")
	b.unchanged(before)
}
