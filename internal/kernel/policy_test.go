package kernel_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// added lists the rules of a namespace without the kernel's initial rules.
func (b *bench) added(t *testing.T) []kernel.PolicyRule {
	t.Helper()
	rules, err := b.container.Routes.Rules()
	must(t, err)
	return slices.DeleteFunc(rules, func(r kernel.PolicyRule) bool { return !r.Src.IsValid() && !r.More })
}

func TestPolicyRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	first := kernel.PolicyRule{Src: prefix("10.1.2.3/32"), Table: 100}
	must(t, b.container.Routes.AddRule(first))
	must(t, b.container.Routes.AddRule(kernel.PolicyRule{Src: prefix("10.1.0.0/16"), Table: 5000}))
	must(t, b.container.Routes.AddRule(kernel.PolicyRule{Src: prefix("fd00::3/128"), Table: 5000}))
	must(t, b.container.Routes.AddRule(kernel.PolicyRule{Src: prefix("10.9.9.9/32"), Table: 254, Priority: 7}))
	want := []kernel.PolicyRule{
		{Src: prefix("10.9.9.9/32"), Table: 254, Priority: 7, Protocol: kernel.Protocol},
		{Src: prefix("10.1.0.0/16"), Table: 5000, Priority: 32764, Protocol: kernel.Protocol},
		{Src: prefix("10.1.2.3/32"), Table: 100, Priority: 32765, Protocol: kernel.Protocol},
		{Src: prefix("fd00::3/128"), Table: 5000, Priority: 32765, Protocol: kernel.Protocol},
	}
	if diff := cmp.Diff(want, b.added(t), compareRoutes); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if err := b.container.Routes.AddRule(want[0]); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the same rule with the same priority: %v", err)
	}
	for _, bad := range []kernel.PolicyRule{{}, {Table: 100}, {Src: prefix("10.1.2.3/32")}} {
		if err := b.container.Routes.AddRule(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%v was added: %v", bad, err)
		}
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestDelPolicyRule: DeleteRule removes one rule and keeps rules that differ, and rollback restores
// it.
func TestDelPolicyRule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, rule := range []string{
		"from 10.1.2.3 lookup 100 protocol 99", "from 10.1.2.3 lookup 100", "from 10.1.2.3 lookup 101", "from 10.1.2.4 lookup 100",
		"from 10.1.2.3 lookup 100 priority 9",
	} {
		b.Container("container").Command("ip", append([]string{"rule", "add"}, fields(rule)...)...)
	}
	before := b.snapshot(t)
	all := b.added(t)
	for i, rule := range all {
		must(t, b.container.Routes.DeleteRule(rule))
		if diff := cmp.Diff(slices.Delete(slices.Clone(all), i, i+1), b.added(t), compareRoutes); diff != "" {
			t.Errorf("without %v (-want +got):\n%s", rule, diff)
		}
		must(t, b.container.Routes.DeleteRule(rule)) // does not exist
		must(t, b.tx.Rollback())
		b.unchanged(t, before)
	}
}

// TestPolicyRulesThatSayMore: Rules omits rules that do more than choose a table by the source.
func TestPolicyRulesThatSayMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, more := range []string{
		"to 10.9.0.0/16", "fwmark 7", "iif lo", "oif lo", "tos 8", "sport 53", "dport 53", "ipproto tcp", "uidrange 7-8", "suppress_prefixlength 0",
	} {
		b.Container("container").Command("ip", append(fields("rule add from 10.1.2.3 lookup 100"), fields(more)...)...)
	}
	for _, rule := range []string{"not from 10.1.2.3 lookup 100", "from 10.1.2.3 blackhole", "from 10.1.2.3 goto 32766"} {
		b.Container("container").Command("ip", append(fields("rule add"), fields(rule)...)...)
	}
	for _, rule := range b.added(t) {
		if !rule.More {
			t.Errorf("%+v counts as a rule that only chooses a table by the source", rule)
		}
	}
}

// TestFreeTables: a table is in use if it has a route of any type in either family, or a rule leads
// to it.
func TestFreeTables(t *testing.T) {
	t.Parallel()
	b, _ := routed(t)
	for _, command := range []string{
		"route add 10.9.0.0/16 via 10.1.2.1 table 100", "route add blackhole 10.9.0.0/16 table 101", "-6 route add fd09::/32 via fd00::1 table 102",
		"rule add from 10.1.2.3 lookup 104", "-6 rule add fwmark 7 lookup 105", "route add 10.9.0.0/16 via 10.1.2.1 table 1000",
	} {
		b.Container("container").Command("ip", fields(command)...)
	}
	free, err := b.container.Routes.FreeTables(150)
	must(t, err)
	if want := []int{103, 106, 107}; !slices.Equal(free[:3], want) {
		t.Errorf("free are %v, want %v first", free[:3], want)
	}
	for _, table := range []int{253, 254, 255} {
		if slices.Contains(free, table) || free[len(free)-1] < 256 {
			t.Errorf("got %v, want no reserved table %d and tables above it", free, table)
		}
	}
}

// TestFreeTablesBesideVRF: the table of a VRF is in use before it contains a route.
func TestFreeTablesBesideVRF(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVRF))
	b := setup(t)
	b.Container("container").Command("ip", fields("link add red type vrf table 100")...)
	if free, err := b.container.Routes.FreeTables(1); err != nil || free[0] != 101 {
		t.Errorf("free are %v, %v; want 101", free, err)
	}
}

// TestSpaceLock: the space holds the lock until it is closed, also during a rollback, and the lock
// excludes a lock by path.
func TestSpaceLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	space, err := b.tx.Open(testnet.NS(t, b.Container("container")))
	must(t, err)
	must(t, space.Lock(t.Context()))
	must(t, b.tx.Rollback())
	path := b.Container("container").Path()
	if err := b.Host.Try("flock", "--nonblock", path, "true"); err == nil {
		t.Error("the lock is free")
	}
	space.Close()
	if err := b.Host.Try("flock", "--nonblock", path, "true"); err != nil {
		t.Errorf("the lock is held: %v", err)
	}
}
