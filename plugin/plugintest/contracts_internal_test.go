package plugintest

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance"
)

// TestContractsNameRequirements looks each identifier up that a contract names.
func TestContractsNameRequirements(t *testing.T) {
	t.Parallel()
	rows, err := conformance.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contracts {
		for id := range strings.FieldsSeq(c.rules) {
			if !slices.ContainsFunc(rows, func(r conformance.Row) bool { return r.ID == id }) {
				t.Errorf("contract %s names %s, which is no requirement", c.name, id)
			}
		}
		if c.demand == "" {
			t.Errorf("contract %s does not say what it demands", c.name)
		}
	}
}
