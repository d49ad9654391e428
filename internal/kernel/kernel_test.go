package kernel_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// bench is a transaction with a space in the host and one in a container.
type bench struct {
	*testnet.Net
	tx              *kernel.Tx
	host, container *kernel.Space
}

func setup(t testing.TB) *bench {
	t.Helper()
	b := &bench{Net: testnet.New(t)}
	b.begin(t, t.Context())
	return b
}

// begin starts another transaction in the same namespaces.
func (b *bench) begin(t testing.TB, ctx context.Context) {
	t.Helper()
	b.tx = kernel.Begin(ctx)
	b.host = open(t, b.tx, b.Host)
	b.container = open(t, b.tx, b.Container("container"))
}

func open(t testing.TB, tx *kernel.Tx, ns *testnet.Namespace) *kernel.Space {
	t.Helper()
	s, err := tx.Open(testnet.NS(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// veth creates eth0 in the container with veth0 as its peer in the host.
func (b *bench) veth(t testing.TB) (inside, host kernel.Link) {
	t.Helper()
	inside, host, err := b.container.Links.AddVeth(kernel.Veth{Name: "eth0", Host: b.host, HostName: "veth0"})
	if err != nil {
		t.Fatal(err)
	}
	return inside, host
}

// vethUp creates the veth pair and sets both ends up.
func (b *bench) vethUp(t testing.TB) (inside, host kernel.Link) {
	t.Helper()
	inside, host = b.veth(t)
	must(t, b.container.Links.Up(inside))
	must(t, b.host.Links.Up(host))
	return inside, host
}

func (b *bench) snapshot(t testing.TB) string {
	t.Helper()
	return testnet.Snapshot(t, b.Spaces())
}

// unchanged fails the test if the namespaces differ from a snapshot.
func (b *bench) unchanged(t testing.TB, before string) {
	t.Helper()
	if diff := testnet.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("state has changed:\n%s", diff)
	}
}

// show returns ip's description of one object.
func show(t testing.TB, ns *testnet.Namespace, args ...string) map[string]any {
	t.Helper()
	list := showAll(t, ns, args...)
	if len(list) != 1 {
		t.Fatalf("ip %v: %d objects: %v", args, len(list), list)
	}
	return list[0]
}

func showAll(t testing.TB, ns *testnet.Namespace, args ...string) []map[string]any {
	t.Helper()
	var list []map[string]any
	out := ns.Command("ip", append([]string{"-j", "-d"}, args...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// deleteNamed deletes a link by its name; it succeeds if the link does not exist.
func deleteNamed(s *kernel.Space, name string) error {
	l, err := s.Links.ByName(name)
	if errors.Is(err, kernel.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Links.Delete(l)
}
