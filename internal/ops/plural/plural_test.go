package plural_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/plural"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n          int
		noun, want string
	}{
		{0, "lease", "0 leases"},
		{1, "lease", "1 lease"},
		{2, "lease", "2 leases"},
		{1, "address", "1 address"},
		{2, "address", "2 addresses"},
		{2, "attachment record", "2 attachment records"},
	} {
		if got := plural.Count(row.n, row.noun); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}
