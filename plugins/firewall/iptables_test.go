package firewall

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const reference = "/usr/lib/cni"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is a host with a transaction.
type host struct {
	*testnet.Namespace
	tx    *kernel.Tx
	space *kernel.Space
}

func newHost(t *testing.T) *host {
	t.Helper()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	ns := testnet.New(t).Host
	tx := kernel.Begin(t.Context())
	space, err := tx.Open(testnet.NS(t, ns))
	must(t, err)
	t.Cleanup(space.Close)
	h := &host{ns, tx, space}
	for _, tool := range []string{"iptables", "ip6tables"} {
		h.Command(tool, "-A", "FORWARD", "-i", "eth9", "-j", "ACCEPT")
	}
	return h
}

var tables = []iptables.Table{
	{Family: iptables.IPv4, Name: "filter"}, {Family: iptables.IPv6, Name: "filter"},
}

// addrs returns the addresses of a table's family.
func addrs(t iptables.Table, both ...string) (list []netip.Addr) {
	for _, s := range both {
		if a := netip.MustParseAddr(s); a.Is4() == (t.Family == iptables.IPv4) {
			list = append(list, a)
		}
	}
	return list
}

func (h *host) admit(t *testing.T, admin string, both ...string) {
	t.Helper()
	for _, table := range tables {
		if list := addrs(table, both...); len(list) > 0 {
			must(t, h.space.Rules.EditIPTables(table, admission(admin, list)))
		}
	}
}

func (h *host) isolate(t *testing.T, bridge string, p ingressPolicy) {
	t.Helper()
	for _, table := range tables {
		must(t, h.space.Rules.EditIPTables(table, isolation(bridge, p)))
	}
}

func (h *host) remove(t *testing.T, what ...iptables.Removal) {
	t.Helper()
	for _, r := range what {
		must(t, h.space.Rules.RemoveIPTables(kernel.IPTables{Table: "filter", Removal: r}))
	}
}

// dismiss removes the rules that admit addresses.
func (h *host) dismiss(t *testing.T, both ...string) {
	t.Helper()
	h.remove(t, admitted(func(a netip.Addr) bool { return slices.Contains(both, a.String()) }))
}

func (h *host) saved() string { return testnet.IPTables(h.Namespace, "", "filter") }

func (h *host) same(t *testing.T, what, want string) {
	t.Helper()
	if diff := cmp.Diff(want, h.saved()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (h *host) reference(t *testing.T, verb, bridge string, keys map[string]any, both ...string) {
	t.Helper()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "firewall")))
	var ips []any
	for _, a := range both {
		bits := "/24"
		if strings.Contains(a, ":") {
			bits = "/64"
		}
		ips = append(ips, map[string]any{"address": a + bits})
	}
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables",
		"prevResult": map[string]any{
			"cniVersion": "1.0.0", "interfaces": []any{map[string]any{"name": bridge}}, "ips": ips,
		},
	}
	for key, value := range keys {
		conf[key] = value
	}
	stdin, err := json.Marshal(conf)
	must(t, err)
	h.Do(func() {
		cmd := exec.Command(filepath.Join(reference, "firewall"))
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID=c",
			"CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0", "CNI_PATH="+reference)
		cmd.Stdin = bytes.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("upstream %s: %v: %s", verb, err, out)
		}
	})
}

const (
	one4, one6 = "10.1.2.2", "2001:db8:1::2"
	two4, two6 = "10.1.2.3", "2001:db8:1::3"
)

// TestAdmissionAsTheReference compares the rules with upstream's, byte for byte; each
// implementation checks and removes the rules of the other.
func TestAdmissionAsTheReference(t *testing.T) {
	t.Parallel()
	for name, admin := range map[string]string{
		"default chain": "CNI-ADMIN", "a chain of the administrator": "ADMIN-of-ours",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := map[string]any{}
			if admin != "CNI-ADMIN" {
				keys["iptablesAdminChainName"] = admin
			}
			theirs, ours := newHost(t), newHost(t)
			for _, both := range [][]string{
				{one4, one6}, {two4, two6}, {one4, one6}, {"10.1.2.4"},
			} {
				theirs.reference(t, "ADD", "br0", keys, both...)
				ours.admit(t, admin, both...)
				ours.same(t, strings.Join(both, " "), theirs.saved())
			}
			ours.reference(t, "CHECK", "br0", keys, one4, one6)
			for _, table := range tables {
				e := admission(admin, addrs(table, one4, one6))
				must(t, theirs.space.Rules.CheckIPTables(table, slices.Concat(e.Common, e.Rules)))
			}
			ours.reference(t, "DEL", "br0", keys, one4, one6)
			theirs.dismiss(t, one4, one6)
			theirs.same(t, "removed", ours.saved())
			theirs.dismiss(t, one4, one6)
			theirs.same(t, "removed again", ours.saved())
			for _, table := range tables {
				err := ours.space.Rules.CheckIPTables(table, admitting(addrs(table, one4, one6)))
				if !errors.Is(err, iptables.ErrMissing) ||
					!strings.Contains(err.Error(), "-A CNI-FORWARD -d ") {
					t.Errorf("check of removed rules: %v", err)
				}
			}
		})
	}
}

// TestDismissIsPrecise: only the plugin's rules for an address are removed; the administrator's
// rules for it stay.
func TestDismissIsPrecise(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.admit(t, "CNI-ADMIN", one4)
	for _, rule := range []string{
		"-A CNI-ADMIN -s 10.1.2.2/32 -j ACCEPT",
		"-A CNI-FORWARD -s 10.1.2.2/32 -p tcp -m tcp --dport 80 -j ACCEPT",
		"-A CNI-FORWARD -s 10.1.2.2/32 -i eth1 -j ACCEPT",
		"-A CNI-FORWARD -s 10.1.2.2/32 -j DROP",
		"-A CNI-FORWARD -d 10.1.2.2/32 -j ACCEPT",
		"-A CNI-FORWARD ! -s 10.1.2.2/32 -j ACCEPT",
		"-A CNI-FORWARD -m comment --comment mine -s 10.1.2.2/32 -j ACCEPT",
	} {
		h.Command("iptables", strings.Fields(rule)...)
	}
	var want []string
	for line := range strings.Lines(h.saved()) {
		if !slices.Contains(admitting(addrs(tables[0], one4)), strings.TrimSpace(line)) {
			want = append(want, line)
		}
	}
	h.dismiss(t, one4)
	h.same(t, "removed", strings.Join(want, ""))
}

// TestAdmissionIsTakenBack: a failed first ADD removes the chains that it made, unless another ADD
// uses them meanwhile.
func TestAdmissionIsTakenBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.saved()
	h.admit(t, "CNI-ADMIN", one4, one6)
	must(t, h.tx.Rollback())
	h.same(t, "rolled back", before)
	h.admit(t, "CNI-ADMIN", one4, one6)
	other := &host{Namespace: h.Namespace, tx: kernel.Begin(t.Context())}
	var err error
	other.space, err = other.tx.Open(testnet.NS(t, h.Namespace))
	must(t, err)
	defer other.space.Close()
	other.admit(t, "CNI-ADMIN", two4, two6)
	must(t, h.tx.Rollback())
	out := h.saved()
	if strings.Contains(out, one4+"/") || strings.Contains(out, one6+"/") ||
		strings.Count(out, "-j CNI-FORWARD") != 2 || strings.Count(out, two4+"/32") != 2 {
		t.Errorf("rolled back with another attachment:\n%s", out)
	}
}

// TestIsolation compares the rules for two bridges with upstream's.
func TestIsolation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.saved()
	h.admit(t, "CNI-ADMIN", one4, one6)
	h.isolate(t, "br7", policyIsolated)
	seven := h.saved()
	h.isolate(t, "br8", policySameBridge)
	want := `-A FORWARD D -j CNI-ISOLATION-STAGE-1
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A FORWARD -i eth9 -j ACCEPT
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-FORWARD -d 10.1.2.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A CNI-FORWARD -s 10.1.2.2/32 -j ACCEPT
-A CNI-ISOLATION-STAGE-1 -i br8 ! -o br8 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge)" -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 -i br7 -o br7 -m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)" -j DROP
-A CNI-ISOLATION-STAGE-1 -i br7 ! -o br7 -m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)" -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 D -j RETURN
-A CNI-ISOLATION-STAGE-2 -o br8 D -j DROP
-A CNI-ISOLATION-STAGE-2 -o br7 D -j DROP
-A CNI-ISOLATION-STAGE-2 D -j RETURN
`
	var got string
	for line := range strings.Lines(h.Command("iptables-save", "-t", "filter")) {
		if strings.HasPrefix(line, "-A") {
			got += strings.ReplaceAll(line,
				`-m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)"`, "D")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	both := h.saved()
	h.isolate(t, "br7", policyIsolated)
	h.same(t, "once more", both)
	for _, table := range tables {
		must(t, h.space.Rules.CheckIPTables(table, isolation("br7", policyIsolated).Common))
		if err := h.space.Rules.CheckIPTables(table, isolation("br9", policySameBridge).
			Common); !errors.Is(err, iptables.ErrMissing) {
			t.Errorf("check of another bridge: %v", err)
		}
	}
	h.remove(t, isolated("br9")...)
	h.same(t, "removal for a bridge without rules", both)
	h.remove(t, isolated("br8")...)
	h.same(t, "one bridge removed", seven)
	h.remove(t, isolated("br7")...)
	h.remove(t, isolated("br7")...)
	if out := h.saved(); strings.Contains(out, "ISOLATION") {
		t.Errorf("rules left after the last bridge:\n%s", out)
	}
	must(t, h.tx.Rollback())
	h.same(t, "rolled back after the removal", before)
}

// TestPolicyChanges: the rules of a bridge's earlier policy are removed.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	direct, changed := newHost(t), newHost(t)
	for _, h := range []*host{direct, changed} {
		h.isolate(t, "br8", policyIsolated)
	}
	direct.isolate(t, "br7", policySameBridge)
	changed.isolate(t, "br7", policyIsolated)
	changed.isolate(t, "br7", policySameBridge)
	changed.same(t, "from isolated to same-bridge", direct.saved())
	changed.isolate(t, "br7", policyIsolated)
	changed.isolate(t, "br7", policySameBridge)
	changed.same(t, "and again", direct.saved())
}

// TestSameBridgeAsTheReference: Debian's version supports only one of the policies, and its
// comments name only that one.
func TestSameBridgeAsTheReference(t *testing.T) {
	t.Parallel()
	theirs, ours := newHost(t), newHost(t)
	for _, bridge := range []string{"br7", "br8", "br7"} {
		theirs.reference(t, "ADD", bridge, map[string]any{"ingressPolicy": "same-bridge"}, one4,
			one6)
		ours.admit(t, "CNI-ADMIN", one4, one6)
		ours.isolate(t, bridge, policySameBridge)
		if diff := cmp.Diff(theirs.saved(), strings.ReplaceAll(ours.saved(), "same-bridge|isolated",
			"same-bridge")); diff != "" {
			t.Errorf("%s (-upstream +Tenon):\n%s", bridge, diff)
		}
	}
	ours.dismiss(t, one4, one6)
	theirs.dismiss(t, one4, one6)
	for _, bridge := range []string{"br8", "br7"} {
		theirs.remove(t, isolated(bridge)...)
	}
	if out := theirs.saved(); strings.Contains(out, "ISOLATION") {
		t.Errorf("remaining rules of the upstream plugin:\n%s", out)
	}
}

// TestIsolationIsTakenBack: if the ADD that made the chains fails, the isolation of other bridges
// stays.
func TestIsolationIsTakenBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.saved()
	h.isolate(t, "br7", policyIsolated)
	must(t, h.tx.Rollback())
	h.same(t, "rolled back", before)
	h.isolate(t, "br7", policyIsolated)
	first := h.tx
	h.tx = kernel.Begin(t.Context())
	space, err := h.tx.Open(testnet.NS(t, h.Namespace))
	must(t, err)
	defer space.Close()
	h.space = space
	h.isolate(t, "br8", policyIsolated)
	both := h.saved()
	must(t, first.Rollback())
	h.same(t, "rolled back with another bridge", both)
}

// TestParallel: ten concurrent calls of each kind.
func TestParallel(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	inParallel := func(do func(*kernel.Space) error) {
		var wg sync.WaitGroup
		for range 10 {
			space, err := kernel.Begin(t.Context()).Open(testnet.NS(t, h.Namespace))
			must(t, err)
			defer space.Close()
			wg.Go(func() {
				if err := do(space); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	inParallel(func(s *kernel.Space) error {
		return errors.Join(s.Rules.EditIPTables(tables[0],
			admission("CNI-ADMIN", addrs(tables[0], one4))),
			s.Rules.EditIPTables(tables[0], isolation("br7", policyIsolated)))
	})
	if out := h.saved(); strings.Count(out, "-A CNI-FORWARD") != 3 ||
		strings.Count(out, "-A CNI-ISOLATION") != 5 {
		t.Errorf("made:\n%s", out)
	}
	inParallel(func(s *kernel.Space) error {
		var errs []error
		for _, r := range append(isolated("br7"), admitted(func(netip.Addr) bool { return true })) {
			errs = append(errs, s.Rules.RemoveIPTables(kernel.IPTables{
				Table: "filter", Removal: r,
			}))
		}
		return errors.Join(errs...)
	})
	if out := h.saved(); strings.Contains(out, "ISOLATION") || strings.Contains(out, one4) {
		t.Errorf("left:\n%s", out)
	}
}
