package local_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

func TestMTU(t *testing.T) {
	t.Parallel()
	dir, none := t.TempDir(), t.TempDir()
	if err := local.New(local.Options{Dir: dir}).SetNode(local.Node{MTU: 1450}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		configured int
		ipam, dir  string
		want       int
	}{
		{0, "cluster", dir, 1450},
		{1400, "cluster", dir, 1400},
		{0, "cluster", none, 0},
		{0, "host-local", dir, 0},
		{1400, "host-local", dir, 1400},
		{0, "", "", 0},
	} {
		conf := fmt.Sprintf(`{"ipam": {"type": %q, "dir": %q}}`, row.ipam, row.dir)
		if got := local.MTU(row.configured, row.ipam, []byte(conf)); got != row.want {
			t.Errorf("%+v: %d", row, got)
		}
	}
	if got := local.MTU(0, "cluster", []byte(`{`)); got != 0 {
		t.Errorf("a configuration that is no JSON: %d", got)
	}
}
