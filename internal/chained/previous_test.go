package chained_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
)

// TestPrevIPs: an address belongs to the container if its interface has the container's interface
// name and the container's namespace as sandbox, by any path. If the result has no such interface,
// the name alone counts (RES-10).
func TestPrevIPs(t *testing.T) {
	t.Parallel()
	var got []string
	r := runtime(t, &fake{apply: func(s *session, _ *cni.Result) error {
		got = nil
		for _, ip := range s.PrevIPs() {
			got = append(got, ip.Address.Addr().String())
		}
		return nil
	}}, chained.Traits{})
	alias := filepath.Join(t.TempDir(), "netns")
	if err := os.Symlink(r.Container("c").Path(), alias); err != nil {
		t.Fatal(err)
	}
	paths := strings.NewReplacer("OURS", r.Container("c").Path(), "ALIAS", alias, "OTHER", r.Container("other").Path())
	const ips = `"ips":[{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.2/24","interface":1},{"address":"10.0.0.3/24"}]`
	for _, row := range []struct {
		name, interfaces string
		want             []string
	}{
		{"as it should be", `{"name":"veth1"},{"name":"eth0","sandbox":"OURS"}`, []string{"10.0.0.2", "10.0.0.3"}},
		{"by another path", `{"name":"eth0"},{"name":"eth0","sandbox":"ALIAS"}`, []string{"10.0.0.2", "10.0.0.3"}},
		{"another container's", `{"name":"eth0","sandbox":"OTHER"},{"name":"eth0","sandbox":"OURS"}`, []string{"10.0.0.2", "10.0.0.3"}},
		{"sandbox leads nowhere", `{"name":"eth0"},{"name":"eth0","sandbox":"netns"}`, []string{"10.0.0.2", "10.0.0.3"}},
		{"no sandbox", `{"name":"veth1"},{"name":"eth0"}`, []string{"10.0.0.2", "10.0.0.3"}},
		{"another interface", `{"name":"eth0","sandbox":"OURS"},{"name":"eth1","sandbox":"OURS"}`, []string{"10.0.0.1", "10.0.0.3"}},
		{"no such interfaces", ``, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
	} {
		q := r.Request(cni.Add, "c")
		q.Conf["prevResult"] = json.RawMessage(`{"interfaces":[` + paths.Replace(row.interfaces) + `],` + ips + `}`)
		r.Must(q)
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}
