package local_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

func TestMTUOf(t *testing.T) {
	t.Parallel()
	dir, none := t.TempDir(), t.TempDir()
	if err := local.New(local.Options{Dir: dir}).SetNode(local.Node{MTU: 1450}); err != nil {
		t.Fatal(err)
	}
	for conf, want := range map[string]int{
		fmt.Sprintf(`{"ipam": {"type": "cluster", "dir": %q}}`, dir):    1450,
		fmt.Sprintf(`{"ipam": {"type": "cluster", "dir": %q}}`, none):   0,
		fmt.Sprintf(`{"ipam": {"type": "host-local", "dir": %q}}`, dir): 0,
		`{}`: 0,
		`{`:  0,
	} {
		if got := local.MTUOf([]byte(conf)); got != want {
			t.Errorf("%s: %d, expected %d", conf, got, want)
		}
	}
}
