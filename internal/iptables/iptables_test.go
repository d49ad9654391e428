package iptables_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func setup(t *testing.T) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Tool("iptables-restore"), testnet.Tool("iptables-legacy"))
	return testnet.New(t).Host
}

var owner = iptables.Masquerade{Chain: "CHAIN",
	Comment: `a "quoted" \ comment; $(touch x) -j ACCEPT`}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// rules returns the rules of the nat table, with C for the comment.
func rules(ns *testnet.Namespace, save string) []string {
	list := []string{}
	for line := range strings.Lines(ns.Command(save, "-t", "nat")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A") {
			list = append(list,
				strings.ReplaceAll(line,
					`-m comment --comment "a \"quoted\" \\ comment; $(touch x) -j ACCEPT"`, "C"))
		}
	}
	return list
}

func expect(t *testing.T, ns *testnet.Namespace, save string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), rules(ns, save)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", save, diff)
	}
}

var nat = iptables.Table{Family: iptables.IPv4, Name: "nat"}

// masquerade applies the edit of a Masquerade to a table that may have rules already.
func masquerade(ctx context.Context, ns *netns.NS, m iptables.Masquerade,
	addrs ...string) (iptables.Undo, error) {
	return nat.Apply(ctx, ns, m.Edit(iptables.IPv4, prefixes(addrs...)), false)
}

// TestMasquerade checks that each address has a rule, not each network, and that no rule exists
// twice. Revert removes only rules and chains that did not exist before.
func TestMasquerade(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	add := func(addrs ...string) iptables.Undo {
		t.Helper()
		undo, err := masquerade(t.Context(), testnet.NS(t, ns), owner, addrs...)
		must(t, err)
		return undo
	}
	first := add("10.1.2.3/24", "10.1.2.4/24")
	all := []string{
		"-A POSTROUTING -s 10.1.2.3/32 C -j CHAIN",
		"-A POSTROUTING -s 10.1.2.4/32 C -j CHAIN",
		"-A CHAIN -d 10.1.2.0/24 C -j ACCEPT",
		"-A CHAIN ! -d 224.0.0.0/4 C -j MASQUERADE",
	}
	expect(t, ns, "iptables-save", all...)
	again := add("10.1.2.3/24")
	expect(t, ns, "iptables-save", all...)
	second := add("10.1.2.5/24", "10.1.2.3/24")
	expect(t, ns, "iptables-save",
		slices.Insert(slices.Clone(all), 2, "-A POSTROUTING -s 10.1.2.5/32 C -j CHAIN")...)
	must(t, nat.Revert(t.Context(), testnet.NS(t, ns), again))
	must(t, nat.Revert(t.Context(), testnet.NS(t, ns), first)) // another rule uses the chain
	expect(t, ns, "iptables-save", "-A POSTROUTING -s 10.1.2.5/32 C -j CHAIN", all[2], all[3])
	// The second edit did not create the chain.
	must(t, nat.Revert(t.Context(), testnet.NS(t, ns), second))
	expect(t, ns, "iptables-save", all[2], all[3])
}

func TestAddPrefixLengths(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	for range 2 { // rules that are read back are recognised
		table := iptables.Table{Family: iptables.IPv6, Name: "nat"}
		_, err := table.Apply(t.Context(), testnet.NS(t, ns),
			owner.Edit(table.Family,
				prefixes("fd00::3/64", "fd01::3/128", "fd02::3/0", "fd03::3/61")), false)
		must(t, err)
		expect(t, ns, "ip6tables-save",
			"-A POSTROUTING -s fd00::3/128 C -j CHAIN",
			"-A POSTROUTING -s fd01::3/128 C -j CHAIN",
			"-A POSTROUTING -s fd02::3/128 C -j CHAIN",
			"-A POSTROUTING -s fd03::3/128 C -j CHAIN",
			"-A CHAIN -d fd00::/64 C -j ACCEPT",
			"-A CHAIN ! -d ff00::/8 C -j MASQUERADE",
			"-A CHAIN -d fd01::3/128 C -j ACCEPT",
			"-A CHAIN C -j ACCEPT",
			"-A CHAIN -d fd03::/61 C -j ACCEPT",
		)
	}
}

// TestAddFails checks that a transaction that iptables refuses changes nothing, and that the error
// gives the reason.
func TestAddFails(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	bad := iptables.Masquerade{Chain: "a-name-that-is-longer-than-iptables-allows", Comment: "c"}
	_, err := masquerade(t.Context(), testnet.NS(t, ns), bad, "10.1.2.3/24")
	if err == nil || !strings.Contains(err.Error(), "iptables-restore") ||
		!strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v, want the error text of iptables-restore", err)
	}
	expect(t, ns, "iptables-save")
	for name, comment := range map[string]string{
		"two lines": "a\nCOMMIT", "not ASCII": "ä",
		"too long": strings.Repeat("x", iptables.MaxComment+1),
	} {
		if _, err := masquerade(t.Context(), testnet.NS(t, ns),
			iptables.Masquerade{Chain: "C", Comment: comment}, "10.1.2.3/24"); err == nil {
			t.Errorf("comment of %s accepted", name)
		}
	}
	long := iptables.Masquerade{Chain: "C", Comment: strings.Repeat("x", iptables.MaxComment)}
	_, err = masquerade(t.Context(), testnet.NS(t, ns), long, "10.1.2.3/24")
	must(t, err)
}

func TestAddIsCalledOff(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	cause := errors.New("terminated")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := masquerade(ctx, testnet.NS(t, ns), owner, "10.1.2.3/24"); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestLegacy(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	ns.Command("iptables", "-t", "nat", "-N", "CHAIN") // of the nftables variant
	for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		if has, err := (iptables.Table{Family: f, Name: "nat"}).HasLegacy(testnet.NS(t, ns)); has ||
			err != nil {
			t.Fatalf("family %d: legacy table in a new namespace: %t, %v", f, has, err)
		}
	}
	for _, rule := range []string{
		"-N CHAIN", "-A CHAIN -j MASQUERADE", "-N OTHER",
		"-A POSTROUTING -s 10.1.2.3/32 -j CHAIN", "-A POSTROUTING -s 10.1.2.4/32 -j CHAIN",
		"-A POSTROUTING -s 10.1.2.3/32 -o eth9 -j OTHER",
		"-A POSTROUTING -s 10.1.2.3/32 -j MASQUERADE",
	} {
		ns.Command("iptables-legacy", append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
	}
	ns.Command("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-s", "10.1.2.3/32", "-m",
		"comment", "--comment", owner.Comment, "-j", "CHAIN")
	if has, err := nat.HasLegacy(testnet.NS(t, ns)); !has || err != nil {
		t.Fatalf("legacy table not found: %v", err)
	}
	foreign := []string{"-A POSTROUTING -s 10.1.2.3/32 -o eth9 -j OTHER",
		"-A POSTROUTING -s 10.1.2.3/32 -j MASQUERADE"}
	remove := func(source string) {
		t.Helper()
		must(t, nat.LegacyRemove(t.Context(), testnet.NS(t, ns), iptables.Removal{
			In: "POSTROUTING", Target: "CHAIN", Match: func(r iptables.Rule) bool {
				return r.Source == netip.MustParseAddr(source)
			},
		}))
	}
	var jumps []iptables.Rule
	must(t, nat.LegacyRemove(t.Context(), testnet.NS(t, ns), iptables.Removal{
		In: "POSTROUTING", Match: func(r iptables.Rule) bool {
			jumps = append(jumps, r)
			return false
		},
	}))
	if len(jumps) != 5 || jumps[4] != (iptables.Rule{Chain: "POSTROUTING", Target: "CHAIN", Comment: owner.Comment, Source: netip.MustParseAddr("10.1.2.3")}) {
		t.Errorf("jumps %v", jumps)
	}
	remove("10.1.2.3")
	expect(t, ns, "iptables-legacy-save",
		slices.Concat([]string{"-A POSTROUTING -s 10.1.2.4/32 -j CHAIN"}, foreign,
			[]string{"-A CHAIN -j MASQUERADE"})...)
	remove("10.1.2.4")
	expect(t, ns, "iptables-legacy-save", foreign...)
	if out := ns.Command("iptables-legacy-save", "-t", "nat"); strings.Contains(out, ":CHAIN") ||
		!strings.Contains(out, ":OTHER") {
		t.Errorf("chains:\n%s", out)
	}
	remove("10.1.2.4") // no rule is left
}

// TestNoTool checks the error if no tool is installed.
func TestNoTool(t *testing.T) {
	ns := testnet.New(t).Host
	must(t, iptables.Available())
	t.Setenv("PATH", t.TempDir())
	_, err := nat.Apply(t.Context(), testnet.NS(t, ns),
		owner.Edit(iptables.IPv4, prefixes("10.1.2.3/24")), true)
	for _, err := range []error{iptables.Available(), err} {
		if !errors.Is(err, iptables.ErrNoTool) ||
			!strings.Contains(err.Error(), "iptables-restore") {
			t.Errorf("got %v, want an error that names the missing tool", err)
		}
	}
}

// TestDeadline checks that the deadline ends a slow iptables-restore.
func TestDeadline(t *testing.T) {
	ns := testnet.New(t).Host
	dir := t.TempDir()
	must(t, exefile.Write(dir+"/iptables-restore", []byte("#!/bin/sh\nexec sleep 60\n")))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := nat.Apply(ctx, testnet.NS(t, ns),
		owner.Edit(iptables.IPv4,
			prefixes("10.1.2.3/24")), true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// announced is a context with a known deadline that never comes.
type announced struct {
	context.Context
	at time.Time
}

// Deadline implements [context.Context].
func (a announced) Deadline() (time.Time, bool) { return a.at, true }

// TestLockedByAnother checks that a tool of the legacy variant waits for the lock until the
// deadline, and that the error names the lock. The test uses a lock file of its own.
func TestLockedByAnother(t *testing.T) {
	testnet.LegacyIPTables(t)
	ns, dir := testnet.New(t).Host, t.TempDir()
	t.Setenv("XTABLES_LOCKFILE", dir+"/lock")
	lock, err := os.Create(dir + "/lock")
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	ctx := announced{t.Context(), time.Now().Add(2500 * time.Millisecond)}
	_, err = nat.Apply(ctx, testnet.NS(t, ns), owner.Edit(iptables.IPv4, prefixes("10.1.2.3/24")),
		true)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "xtables lock") {
		t.Errorf("got %v, want an error that names the lock", err)
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	_, err = nat.Apply(t.Context(), testnet.NS(t, ns),
		owner.Edit(iptables.IPv4, prefixes("10.1.2.3/24")), true)
	must(t, err)
}

// TestMadeByOthersMeanwhile lets an upstream plugin create the same chain between reading and
// changing. The plugin's rules must stay.
func TestMadeByOthersMeanwhile(t *testing.T) {
	ns := setup(t)
	dir := t.TempDir()
	restore, err := exec.LookPath("iptables-restore")
	must(t, err)
	script := "#!/bin/sh\nif mkdir " + dir +
		"/once 2>/dev/null; then\n iptables -t nat -N CHAIN\n iptables -t nat -A CHAIN -p tcp -j ACCEPT\nfi\nexec " + restore + " \"$@\"\n"
	must(t, exefile.Write(dir+"/iptables-restore", []byte(script)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	undo, err := nat.Apply(t.Context(), testnet.NS(t, ns),
		owner.Edit(iptables.IPv4, prefixes("10.1.2.3/24")), true)
	must(t, err)
	expect(t, ns, "iptables-save",
		"-A POSTROUTING -s 10.1.2.3/32 C -j CHAIN",
		"-A CHAIN -p tcp -j ACCEPT",
		"-A CHAIN -d 10.1.2.0/24 C -j ACCEPT",
		"-A CHAIN ! -d 224.0.0.0/4 C -j MASQUERADE",
	)
	must(t, nat.Revert(t.Context(), testnet.NS(t, ns), undo))
	if got := rules(ns, "iptables-save"); len(got) != 3 || got[0] != "-A CHAIN -p tcp -j ACCEPT" {
		t.Errorf("after the revert: %v", got)
	}
}

// TestEditIsRefused checks that an edit may only contain rules that concern its chains.
func TestEditIsRefused(t *testing.T) {
	t.Parallel()
	ns := setup(t)
	for name, rule := range map[string]string{
		"foreign chain, foreign target": "-A POSTROUTING -j MASQUERADE",
		"no rule":                       "-D CHAIN -j ACCEPT",
		"two lines":                     "-A CHAIN -j ACCEPT\n-F", "empty": "",
	} {
		if _, err := nat.Apply(t.Context(), testnet.NS(t, ns),
			iptables.Edit{Chains: []string{"CHAIN"}, Rules: []string{rule}}, true); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	for _, chain := range []string{"", "-F", "two words", "two\nlines", `"quoted"`,
		"a-name-that-is-longer-than-iptables-allows"} {
		if _, err := nat.Apply(t.Context(), testnet.NS(t, ns),
			iptables.Edit{Chains: []string{chain}}, true); err == nil {
			t.Errorf("chain %q accepted", chain)
		}
	}
	expect(t, ns, "iptables-save")
}
