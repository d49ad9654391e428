package hostlocal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func list(t *testing.T, name, plugins string) *cni.List {
	t.Helper()
	l, err := cni.ParseList(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": %q, "plugins": [%s]}`,
		name, plugins))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reserve writes files into a data directory as the upstream plugin does.
func reserve(t *testing.T, dir, network string, addrs ...string) {
	t.Helper()
	path := filepath.Join(dir, network)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if err := os.WriteFile(filepath.Join(path, a), []byte("web\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func show(pools []hostlocal.Pool) string {
	var b strings.Builder
	for _, p := range pools {
		fmt.Fprintf(&b, "%s in %s\n", p.Network, filepath.Base(p.Dir))
		for _, r := range p.Ranges {
			fmt.Fprintf(&b, "  %s %d/%d\n", r, r.Used, r.Size())
		}
		for _, l := range p.Leases {
			fmt.Fprintf(&b, "  %s %s %s\n", l.Addr, l.Owner, l.Boot)
		}
	}
	return b.String()
}

func TestPools(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	a, b, c := filepath.Join(tmp, "a"), filepath.Join(tmp, "b"), filepath.Join(tmp, "c")
	lists := []*cni.List{
		list(t, "ranges", fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.1.0.0/24",
			"ranges": [[{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.9", "rangeEnd": "10.2.0.10"}, {"subnet": "10.6.0.0/24"}]]}}`, a)),
		list(t, "empty",
			fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.3.0.0/30"}}`,
				b)),
		list(t, "empty",
			fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/30"}}`,
				b)),
		list(t, "two", fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.4.0.0/30"}},
			{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.5.0.0/30"}}`, a, b)),
		list(t, "other", `{"type": "bridge", "ipam": {"type": "static"}}, {"type": "loopback"}`),
	}
	reserve(t, a, "ranges", "10.1.0.2", "10.1.0.3", "10.2.0.10", "192.0.2.1")
	reserve(t, a, "former", "10.7.0.2")
	reserve(t, c, "scanned", "10.8.0.2")
	reserve(t, c, "not a network", "10.8.0.2")
	pools, err := hostlocal.Pools(t.Context(), lists, c, filepath.Join(tmp, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `empty in b
  10.3.0.1-10.3.0.2 0/2
former in a
  10.7.0.2 container web interface eth0 foreign
ranges in a
  10.1.0.1-10.1.0.254 2/254
  10.2.0.9-10.2.0.10 1/2
  10.6.0.1-10.6.0.254 0/254
  10.1.0.2 container web interface eth0 foreign
  10.1.0.3 container web interface eth0 foreign
  10.2.0.10 container web interface eth0 foreign
  192.0.2.1 container web interface eth0 foreign
scanned in c
  10.8.0.2 container web interface eth0 foreign
two in a
  10.4.0.1-10.4.0.2 0/2
two in b
  10.5.0.1-10.5.0.2 0/2
`
	if diff := cmp.Diff(want, show(pools)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if entries, err := os.ReadDir(b); err == nil {
		t.Errorf("Pools created %v", entries)
	}
}

func TestPoolsOfBrokenConfigurations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lists := []*cni.List{
		list(t, "bad",
			fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.1.0.1/24"}}`,
				dir)),
		list(t, "worse",
			fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": 1}}`,
				dir)),
		list(t, "good",
			fmt.Sprintf(`{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.2.0.0/30"}}`,
				dir)),
	}
	reserve(t, dir, "bad", "10.1.0.2")
	pools, err := hostlocal.Pools(t.Context(), lists)
	if err != nil {
		t.Errorf("a broken configuration hides others: %v", err)
	}
	for _, p := range pools {
		if prefix := "network " + p.Network +
			": plugin bridge: ipam: "; (p.Invalid == nil) != (p.Network == "good") ||
			p.Invalid != nil && !strings.HasPrefix(p.Invalid.Error(), prefix) {
			t.Errorf("%s: %v", p.Network, p.Invalid)
		}
	}
	const want = `bad in 001
  10.1.0.2 container web interface eth0 foreign
good in 001
  10.2.0.1-10.2.0.2 0/2
worse in 001
`
	if diff := cmp.Diff(want, show(pools)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPoolsWaitNoLongerThanTheContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reserve(t, dir, "pods", "10.1.0.2")
	s, err := filestore.Open(t.Context(), filestore.Options{Dir: dir, Network: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := hostlocal.Pools(ctx, nil, dir); err == nil ||
		!strings.Contains(err.Error(), "network pods") {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pools, err := hostlocal.Pools(t.Context(), nil, dir)
	if err != nil || len(pools) != 1 || pools[0].Leases[0].Addr != netip.MustParseAddr("10.1.0.2") {
		t.Errorf("got %v, %v", pools, err)
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reserve(t, dir, "pods", "10.1.0.2", "10.1.0.3")
	pools, err := hostlocal.Pools(t.Context(), nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	p := pools[0]
	l, ok := p.Find(netip.MustParseAddr("10.1.0.2"))
	if _, other := p.Find(netip.MustParseAddr("10.1.0.4")); !ok || other {
		t.Fatalf("found %v, %v", ok, other)
	}
	path := filepath.Join(dir, "pods", "10.1.0.2")
	if err := os.WriteFile(path, []byte("db\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Free(t.Context(), l); err == nil ||
		!strings.Contains(err.Error(), "10.1.0.2 held by container db interface eth0") {
		t.Errorf("Free of an address with another holder: %v", err)
	}
	l.Owner.Container = "db"
	for range 2 {
		if err := p.Free(t.Context(), l); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil ||
		slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() == "10.1.0.2" }) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPeekPools: reading the pools neither creates a lock nor waits for one.
func TestPeekPools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reserve(t, dir, "free", "10.1.0.2")
	reserve(t, dir, "busy", "10.2.0.2")
	s, err := filestore.Open(t.Context(), filestore.Options{Dir: dir, Network: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pools, err := hostlocal.PeekPools(t.Context(), nil, dir)
	if err != nil || len(pools) != 2 || len(pools[0].Leases) != 1 || len(pools[1].Leases) != 1 {
		t.Errorf("%+v, %v", pools, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "free", "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock: %v", err)
	}
}
