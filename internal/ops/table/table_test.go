package table_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/table"
)

// terminal is a writer with a width.
type terminal struct {
	strings.Builder
	width int
}

func (t *terminal) Width() int { return t.width }

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"NETWORK", "PLUGINS", "NOTE"},
		{"pods", "bridge,portmap,firewall,bandwidth,tuning", ""},
		{"a-long-name-of-a-network", "ptp", "hidden by 10-pods.conflist"},
	}
	const wide = `NETWORK                   PLUGINS                                   NOTE
pods                      bridge,portmap,firewall,bandwidth,tuning  -
a-long-name-of-a-network  ptp                                       hidden by 10-pods.conflist
`
	for width, want := range map[int]string{
		0:   wide,
		200: wide,
		94:  wide,
		60: `NETWORK            PLUGINS              NOTE
pods               bridge,portmap,      -
                   firewall,bandwidth,
                   tuning
a-long-name-of-a-  ptp                  hidden by
network                                 10-pods.conflist
`,
	} {
		w := &terminal{width: width}
		if err := table.Write(w, rows); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, trimLines(w.String())); diff != "" {
			t.Errorf("%d columns (-want +got)\n%s", width, diff)
		}
	}
}

// A table stays readable on a terminal that is too narrow for it.
func TestTableOnATinyTerminal(t *testing.T) {
	t.Parallel()
	w := &terminal{width: 5}
	if err := table.Write(w, [][]string{{"A", "INTERFACE"}, {"0123456789", "eth0"}}); err != nil {
		t.Fatal(err)
	}
	want := "A         INTERFACE\n01234567  eth0\n89\n"
	if diff := cmp.Diff(want, trimLines(w.String())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func trimLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
