package all_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/all"
)

// TestPools: an invalid configuration, or reservations of an unknown network, do not hide the other
// networks.
func TestPools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, lease := range []string{"pods/10.1.0.2", "pods/10.1.0.3", "pods/10.2.0.9",
		"former/10.7.0.2"} {
		path := filepath.Join(dir, lease)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("web\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lists []*cni.List
	for _, conf := range []string{
		`"name": "pods", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q,
			"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.9", "rangeEnd": "10.2.0.10"}]]}}]`,
		`"name": "wrong", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.3.0.1/24"}}]`,
		`"name": "empty", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "fd00::/64"}}]`,
	} {
		l, err := cni.ParseList(fmt.Appendf(nil, `{"cniVersion": "1.1.0", `+conf+`}`, dir))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, l)
	}
	pools, err := all.Pools(t.Context(), lists)
	if err == nil || !strings.HasPrefix(err.Error(), "network wrong: plugin bridge: ipam: ") {
		t.Errorf("error %v", err)
	}
	want := []all.Pool{
		{Network: "empty", Range: "fd00::1-fd00::ffff:ffff:ffff:ffff", Size: 1<<64 - 1},
		{Network: "pods", Range: "10.1.0.1-10.1.0.254", Size: 254, Used: 2},
		{Network: "pods", Range: "10.2.0.9-10.2.0.10", Size: 2, Used: 1},
	}
	if diff := cmp.Diff(want, pools); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
