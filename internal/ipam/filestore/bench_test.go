package filestore_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
)

// filled creates a directory in the state that upstream leaves: addresses of a /16 from the first
// one on, except those for which skip returns true.
func filled(t testing.TB, leases int, skip func(i int) bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("10.1.0.2")
	for i := range leases {
		if !skip(i) {
			content := fmt.Sprintf("%064d\r\neth0", i)
			if err := os.WriteFile(filepath.Join(path, a.String()), []byte(content),
				0o600); err != nil {
				t.Fatal(err)
			}
		}
		a = a.Next()
	}
	return path
}

// layouts are the numbers of reservations in a /16. The last two are fragmented: every eighth
// address is free, or only one that is far from the last.
var layouts = []struct {
	name   string
	leases int
	skip   func(i int) bool
}{
	{"100", 100, func(int) bool { return false }},
	{"10000", 10000, func(int) bool { return false }},
	{"60000", 60000, func(int) bool { return false }},
	{"60000 fragmented", 65532, func(i int) bool { return i%8 == 7 }},
	{"full but one", 65532, func(i int) bool { return i == 40000 }},
}

// BenchmarkAllocateRelease runs an ADD and a DEL in one process: in the steady state, and after
// another program has changed the directory, when all files are read. In the steady state all
// layouts cost the same.
func BenchmarkAllocateRelease(b *testing.B) {
	sets := storetest.Sets(b, "10.1.0.0/16")
	for _, layout := range layouts {
		path := filled(b, layout.leases, layout.skip)
		n := network(path, bootID)
		n.State(b)
		round := func(b *testing.B, i int) {
			o := ipam.Owner{Container: fmt.Sprintf("%064d", 1_000_000+i), IfName: "eth0"}
			if _, err := n.Allocate(b.Context(), ipam.Request{Owner: o, Sets: sets}); err != nil {
				b.Fatal(err)
			}
			if err := n.Release(b.Context(), o); err != nil {
				b.Fatal(err)
			}
		}
		round(b, 0)
		b.Run(layout.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				round(b, i)
			}
		})
		b.Run(layout.name+"/changed by others", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil {
					b.Fatal(err)
				}
				round(b, i)
			}
		})
	}
}
