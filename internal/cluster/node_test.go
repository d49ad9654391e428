package cluster_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func TestLaterNonce(t *testing.T) {
	t.Parallel()
	second := cluster.NextNonce("b", "ab-12") // the first one has no number
	tenth := cluster.NextNonce("c", "9-x", second)
	if second != "1-b" || tenth != "10-c" {
		t.Errorf("%q and %q follow, expected 1-b and 10-c", second, tenth)
	}
	for _, row := range []struct {
		nonce, other string
		want         bool
	}{
		{"ab-12", "", true}, {"ab-12", "ab-12", false}, {"1-b", "ab-12", true}, {"ab-12", "1-b", false},
		{"1-b", "1-c", false}, {"10-c", "9-x", true}, {"12", "1-b", false},
	} {
		if got := cluster.LaterNonce(row.nonce, row.other); got != row.want {
			t.Errorf("LaterNonce(%q, %q) = %v", row.nonce, row.other, got)
		}
	}
}
