package plugintest

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance"
)

// TestContractsNameRequirements looks up the identifiers in all contracts.
func TestContractsNameRequirements(t *testing.T) {
	t.Parallel()
	rows, err := conformance.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contracts {
		for id := range strings.FieldsSeq(c.rules) {
			if !slices.ContainsFunc(rows, func(r conformance.Row) bool { return r.ID == id }) {
				t.Errorf("contract %s names %s, which is not a requirement", c.name, id)
			}
		}
		if c.demand == "" {
			t.Errorf("contract %s does not describe its demand", c.name)
		}
	}
}
