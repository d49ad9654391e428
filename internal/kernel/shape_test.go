package kernel_test

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func shaping(t *testing.T) *bench {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping), testnet.Tool("tc"))
	return setup(t)
}

// orders matches properties that do not matter: positions of filters of one priority, and reference
// counts of qdiscs.
var orders = regexp.MustCompile(`chain 0 order \d+| refcnt \d+`)

// shown returns tc's output for the host.
func (b *bench) shown(t *testing.T) string {
	t.Helper()
	lines, err := testnet.Shaping(b.Host)
	must(t, err)
	for i := range lines {
		lines[i] = orders.ReplaceAllString(lines[i], "")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestSetTBF(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	_, l := b.vethUp(t)
	none := b.shown(t)
	slow := kernel.TBF{Rate: 125000, Buffer: 80 * time.Millisecond, Limit: 13125}
	must(t, b.host.Qdiscs.SetTBF(l, slow))
	if got, want := b.shown(t), "qdisc tbf 1: dev veth0 root rate 1Mbit burst 10000b lat 25ms"; got != want {
		t.Errorf("tc shows %q, want %q", got, want)
	}
	for name, tbf := range map[string]kernel.TBF{
		"slow":                  slow,
		"64 bits of rate":       {Rate: 12500e6, Buffer: 100 * time.Microsecond, Limit: 313750000},
		"longest buffer":        {Rate: 1, Buffer: math.MaxInt64, Limit: math.MaxUint32},
		"shorter than one tick": {Rate: 1 << 40, Buffer: 1, Limit: 10000},
	} {
		b.begin(t, t.Context())
		before := b.shown(t)
		must(t, b.host.Qdiscs.SetTBF(l, tbf))
		if got, ok, err := b.host.Qdiscs.TBF(l); err != nil || !ok || !got.Same(tbf) {
			t.Errorf("%s: got %s %t %v, want %s", name, got, ok, err, tbf)
		}
		must(t, b.tx.Rollback())
		if diff := cmp.Diff(before, b.shown(t)); diff != "" {
			t.Errorf("%s: rollback: %s", name, diff)
		}
	}
	b.begin(t, t.Context())
	before := b.shown(t)
	must(t, b.host.Qdiscs.DeleteTBF(l))
	must(t, b.host.Qdiscs.DeleteTBF(l))
	if diff := cmp.Diff(none, b.shown(t)); diff != "" {
		t.Error(diff)
	}
	must(t, b.tx.Rollback())
	if diff := cmp.Diff(before, b.shown(t)); diff != "" {
		t.Errorf("rollback of a deletion: %s", diff)
	}
	for _, other := range []kernel.TBF{
		{Rate: 125001, Buffer: slow.Buffer, Limit: slow.Limit},
		{Rate: slow.Rate, Buffer: slow.Buffer + 2*time.Microsecond, Limit: slow.Limit},
		{Rate: slow.Rate, Buffer: slow.Buffer, Limit: slow.Limit + 1},
	} {
		if slow.Same(other) || !slow.Same(slow) {
			t.Errorf("%s is the same as %s", other, slow)
		}
	}
}

// TestSetTBFLeavesOthers: SetTBF does not replace the root qdisc of another program.
func TestSetTBFLeavesOthers(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	_, l := b.vethUp(t)
	b.Host.Command("tc", "qdisc", "add", "dev", "veth0", "root", "handle", "8:", "pfifo")
	before := b.snapshot(t)
	if err := b.host.Qdiscs.SetTBF(l, kernel.TBF{Rate: 1000, Buffer: time.Second, Limit: 2000}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want EEXIST", err)
	}
	must(t, b.host.Qdiscs.DeleteTBF(l))
	b.unchanged(t, before)
}

// filterSets returns sets of filters to an ifb.
func filterSets(ifb int) map[string][]kernel.Filter {
	src := func(s string) kernel.Match { return kernel.Match{Prefix: prefix(s)} }
	dst := func(s string) kernel.Match { return kernel.Match{Prefix: prefix(s), Dst: true} }
	return map[string][]kernel.Filter{
		"none": nil,
		"all":  {{Hook: kernel.Ingress, Priority: 1, Target: ifb}},
		"received": {
			{Hook: kernel.Ingress, Priority: 2, Match: dst("10.0.0.0/8"), Target: ifb},
			{Hook: kernel.Ingress, Priority: 2, Match: dst("0.0.0.0/0"), Target: ifb},
			{Hook: kernel.Ingress, Priority: 2, Match: src("10.1.2.3/32"), Target: ifb},
			{Hook: kernel.Ingress, Priority: 3, Match: dst("fd00::/8")},
			{Hook: kernel.Ingress, Priority: 3, Match: src("2001:db8:1234:5678:9ab8::/77")},
			{Hook: kernel.Ingress, Priority: 3, Match: src("::/0")},
		},
		"both": {
			{Hook: kernel.Ingress, Priority: 2, Match: dst("10.0.0.0/8")},
			{Hook: kernel.Ingress, Priority: 4, Target: ifb},
			{Hook: kernel.Egress, Priority: 5, Match: src("fd00::1/128")},
			{Hook: kernel.Egress, Priority: 6, Match: src("fd00:8000::/17"), Target: ifb},
		},
	}
}

// TestSetFilters changes each set to each other set, and makes each single change on the way fail
// once.
func TestSetFilters(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	_, l := b.vethUp(t)
	ifb, err := b.host.Links.Add(kernel.NewLink{Kind: "ifb", Name: "ifb7", MTU: 1400, Alias: "owner"})
	must(t, err)
	sets := filterSets(ifb.Index)
	mine := func(kernel.Filter) bool { return true }
	for from, first := range sets {
		for to, second := range sets {
			fault := errors.New("fault")
			for n := 1; ; n++ {
				b.begin(t, t.Context())
				must(t, b.host.Qdiscs.SetFilters(l, mine, first))
				before := b.shown(t)
				count := 0
				b.begin(t, t.Context())
				b.tx.Watch(func(string) error {
					if count++; count == n {
						return fault
					}
					return nil
				})
				err := b.host.Qdiscs.SetFilters(l, mine, second)
				if count < n {
					must(t, err)
					have, err := b.host.Qdiscs.Filters(l)
					must(t, err)
					compareFilters(t, have, second)
					from, err := b.host.Qdiscs.Redirections()
					must(t, err)
					if leads := slices.ContainsFunc(second, func(f kernel.Filter) bool { return f.Target == ifb.Index }); leads != (len(from[ifb.Index]) > 0) {
						t.Errorf("redirections %v, but filters %v", from, second)
					}
				} else if !errors.Is(err, fault) {
					t.Errorf("from %s to %s: %v", from, to, err)
				}
				must(t, b.tx.Rollback())
				if diff := cmp.Diff(before, b.shown(t)); diff != "" {
					t.Fatalf("from %s to %s, rollback after %d changes: %s", from, to, n-1, diff)
				}
				if count < n {
					break
				}
			}
		}
	}
	b.begin(t, t.Context())
	must(t, b.host.Qdiscs.SetFilters(l, mine, nil))
	if out := b.shown(t); out != "" {
		t.Errorf("left: %s", out)
	}
}

func compareFilters(t *testing.T, have, want []kernel.Filter) {
	t.Helper()
	text := func(list []kernel.Filter) (out []string) {
		for _, f := range list {
			out = append(out, f.String())
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(text(want), text(have)); diff != "" {
		t.Error(diff)
	}
}

// TestSetFiltersLeavesOthers: SetFilters keeps filters of other programs, and a qdisc that they
// need.
func TestSetFiltersLeavesOthers(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	_, l := b.vethUp(t)
	ifb, err := b.host.Links.Add(kernel.NewLink{Kind: "ifb", Name: "ifb7", Alias: "owner"})
	must(t, err)
	b.Host.Command("tc", "qdisc", "add", "dev", "veth0", "ingress")
	for _, words := range []string{
		"protocol ip prio 7 u32 match ip dst 10.0.0.0/8 flowid 2:1",
		"protocol ip prio 7 u32 match u8 6 0xff at 9 flowid 1:1",
		"protocol all prio 8 u32 match u32 0 0 flowid 1:1 action mirred egress mirror dev ifb7",
		"protocol all prio 9 u32 match u32 0 0 flowid 1:1 action mirred ingress redirect dev ifb7",
	} {
		b.Host.Command("tc", strings.Fields("filter add dev veth0 parent ffff: "+words)...)
	}
	b.tx.Keep()
	before := b.shown(t)
	all := func(kernel.Filter) bool { return true }
	sets := filterSets(ifb.Index)
	if err := b.host.Qdiscs.SetFilters(l, all, sets["both"]); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want EEXIST", err)
	}
	must(t, b.tx.Rollback())
	for _, want := range [][]kernel.Filter{sets["all"], nil} {
		must(t, b.host.Qdiscs.SetFilters(l, all, want))
		have, err := b.host.Qdiscs.Filters(l)
		must(t, err)
		compareFilters(t, have, want)
	}
	if diff := cmp.Diff(before, b.shown(t)); diff != "" {
		t.Error(diff)
	}
}

// TestFilterToNowhere: a filter with a deleted target drops its packets. Filters lists it, and it
// can be deleted.
func TestFilterToNowhere(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	_, l := b.vethUp(t)
	ifb, err := b.host.Links.Add(kernel.NewLink{Kind: "ifb", Name: "ifb7", Alias: "owner"})
	must(t, err)
	all := func(kernel.Filter) bool { return true }
	must(t, b.host.Qdiscs.SetFilters(l, all, []kernel.Filter{{Hook: kernel.Ingress, Priority: 1, Target: ifb.Index}}))
	must(t, b.host.Links.Delete(ifb))
	have, err := b.host.Qdiscs.Filters(l)
	must(t, err)
	if len(have) != 1 || have[0].Target >= 0 {
		t.Errorf("filters %v", have)
	}
	must(t, b.host.Qdiscs.SetFilters(l, all, nil))
	if out := b.shown(t); out != "" {
		t.Errorf("left: %s", out)
	}
}

func TestIFB(t *testing.T) {
	t.Parallel()
	b := shaping(t)
	before := b.snapshot(t)
	mac := []byte{2, 1, 2, 3, 4, 5}
	l, err := b.host.Links.Add(kernel.NewLink{Kind: "ifb", Name: "ifb7", MTU: 1400, MAC: mac, Alias: "owner"})
	must(t, err)
	if l.Kind != "ifb" || l.Alias != "owner" || l.MTU != 1400 || l.MAC.String() != "02:01:02:03:04:05" || l.Up {
		t.Errorf("got %+v", l)
	}
	if out := show(t, b.Host, "link", "show", "ifb7"); out["txqlen"] != nil || out["ifalias"] != "owner" {
		t.Errorf("ip shows %v", out)
	}
	if _, err := b.host.Links.Add(kernel.NewLink{Kind: "ifb", Name: "ifb7"}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("second: %v, want EEXIST", err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}
