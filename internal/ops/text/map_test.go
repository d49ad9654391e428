package text_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/topology/sample"
)

// TestMapFitsTheTerminal cuts names and addresses, and moves problems to lines of their own.
func TestMapFitsTheTerminal(t *testing.T) {
	t.Parallel()
	tree := topology.Build(sample.Host(14)).Tree(false)
	for _, width := range []int{20, 40, 60, 80, 120} {
		w := &terminal{width: width}
		if err := text.Map(w, tree); err != nil {
			t.Fatal(err)
		}
		body, _, _ := strings.Cut(w.String(), "\n\n")
		for line := range strings.Lines(body) {
			if n := topology.Columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d of %d columns: %s", n, width, line)
			}
		}
	}
	const want = ` node-7   up0 192.0.2.1/24 ── default via 192.0.2.2
 ├─ cni0           10.77.0.1/16, fd77:…  network pods, 14 a…
 │  ├─ cache       10.77.0.4             ✗ namespace gone
 │  ├─ db          10.77.0.3, fd77::3
 │  │    ✗ host side vethf562b67c48e is down
`
	w := &terminal{width: 60}
	if err := text.Map(w, tree); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.SplitAfter(w.String(), "\n")[:5], "")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
