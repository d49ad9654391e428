package file_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/store"
	"github.com/tenon-cni/tenon/internal/ipam/store/file"
	"github.com/tenon-cni/tenon/internal/ipam/store/storetest"
)

func boot(n int) string { return fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", n) }

func TestBootID(t *testing.T) {
	t.Parallel()
	id, err := file.BootID()
	if err != nil || len(id) != 36 {
		t.Errorf("got %q, %v", id, err)
	}
}

// The first operation after a boot reclaims what was reserved before it, unless somebody else reserved it.
func TestReservationsOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	sets := storetest.Sets(t, "10.0.0.0/24")
	first := map[string]func(t *testing.T, n storetest.Network){
		"ADD": func(t *testing.T, n storetest.Network) { mustAllocate(t, n, owner("new"), sets) },
		"DEL": func(t *testing.T, n storetest.Network) { mustRelease(t, n, owner("unknown")) },
		"CHECK": func(t *testing.T, n storetest.Network) {
			n.Do(t, nil, func(s store.Store) { s.Held(ctx, owner("c1")) })
		},
		"STATUS": func(t *testing.T, n storetest.Network) {
			n.Do(t, nil, func(s store.Store) { ipam.Available(ctx, s, sets) })
		},
	}
	for verb, operation := range first {
		for _, index := range []string{"with", "without"} {
			t.Run(verb+" "+index+" index", func(t *testing.T) {
				t.Parallel()
				path := newPath(t)
				mustAllocate(t, network(path, boot(1)), owner("c1"), sets)
				mustAllocate(t, network(path, boot(1)), owner("c2"), sets)
				write(t, filepath.Join(path, "10.0.0.9"), "foreign\r\neth0")
				if index == "without" {
					if err := os.RemoveAll(filepath.Join(path, ".owners")); err != nil {
						t.Fatal(err)
					}
				}
				wantBoots(t, path, boot(2), "10.0.0.2 earlier", "10.0.0.3 earlier", "10.0.0.9 foreign")
				var log bytes.Buffer
				operation(t, logged(path, boot(2), &log))
				want := fmt.Sprintf("level=INFO msg=\"reclaimed addresses that nobody holds\" dir=%s count=2\n", path)
				if log.String() != want {
					t.Errorf("logged  %swant %s", log.String(), want)
				}
				left := []string{"10.0.0.9 foreign"}
				if verb == "ADD" {
					left = []string{"10.0.0.4 current", "10.0.0.9 foreign"}
				}
				wantBoots(t, path, boot(2), left...)
			})
		}
	}
}

func wantBoots(t *testing.T, path, boot string, want ...string) {
	t.Helper()
	var got []string
	network(path, boot).Do(t, nil, func(s store.Store) {
		leases, err := s.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			got = append(got, fmt.Sprint(l.Addr, " ", l.Boot))
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The same container may come back after a boot and get the same address from somebody else: that one counts.
func TestForeignReservationInThePlaceOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	sets := storetest.Sets(t, "10.0.0.0/24")
	mustAllocate(t, network(path, boot(1)), owner("c1"), sets)
	name := filepath.Join(path, "10.0.0.2")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	write(t, name, "c1\r\neth0")
	mustAllocate(t, network(path, boot(2)), owner("c2"), sets)
	wantBoots(t, path, boot(2), "10.0.0.2 foreign", "10.0.0.3 current")
}

// Containers that nobody releases fill a range once per boot, not once and for all.
func TestBootsDoNotExhaust(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	sets := storetest.Sets(t, "10.0.0.0/28")
	for b := range 20 {
		n := network(path, boot(b))
		for i := range 13 {
			mustAllocate(t, n, owner(fmt.Sprintf("c%d-%d", b, i)), sets)
		}
	}
	network(path, boot(20)).Do(t, nil, func(s store.Store) {
		freed, err := s.Collect(ctx, nil)
		if err != nil || len(freed) != 13 {
			t.Errorf("collected %v, %v", freed, err)
		}
	})
}
