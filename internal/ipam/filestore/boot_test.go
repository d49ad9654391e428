package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
)

func boot(n int) string { return fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", n) }

// TestReservationsOfAnEarlierBoot: the first operation after a boot reclaims earlier reservations,
// except for those of other implementations.
func TestReservationsOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	sets := storetest.Sets(t, "10.0.0.0/24")
	first := map[string]func(t *testing.T, n storetest.Network){
		"ADD": func(t *testing.T, n storetest.Network) { mustAllocate(t, n, owner("new"), sets) },
		"DEL": func(t *testing.T, n storetest.Network) { mustRelease(t, n, owner("unknown")) },
		"CHECK": func(t *testing.T, n storetest.Network) {
			n.Do(t, nil, func(s ipam.Store) { s.Held(ctx, owner("c1")) })
		},
		"STATUS": func(t *testing.T, n storetest.Network) {
			n.Do(t, nil, func(s ipam.Store) { ipam.Available(ctx, s, sets) })
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
				wantBoots(t, path, boot(2), "10.0.0.2 earlier", "10.0.0.3 earlier",
					"10.0.0.9 foreign")
				var log bytes.Buffer
				operation(t, logged(path, boot(2), &log))
				want := fmt.Sprintf(
					"level=INFO msg=\"reclaimed unused addresses\" dir=%s count=2\n", path)
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
	network(path, boot).Do(t, nil, func(s ipam.Store) {
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

// TestForeignReservationInThePlaceOfAnEarlierOne: after a boot, another implementation reserves the
// same address for the same container; that reservation counts.
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

// TestForeignReservationOlderThanTheSystem: only the time of a file suggests that another
// implementation reserved the address before the boot, and clocks may be wrong. The lease reports
// it, but is not reclaimed.
func TestForeignReservationOlderThanTheSystem(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, a := range []string{"10.0.0.2", "10.0.0.3"} {
		name := filepath.Join(path, a)
		write(t, name, "foreign\r\neth0")
		if a == "10.0.0.2" {
			if err := os.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustAllocate(t, network(path, boot(1)), owner("c1"), storetest.Sets(t, "10.0.0.0/24"))
	wantBoots(t, path, boot(1), "10.0.0.2 foreign, earlier", "10.0.0.3 foreign", "10.0.0.4 current")
}

// TestBootsDoNotExhaust: containers without DEL fill a range once per boot, not permanently.
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
	network(path, boot(20)).Do(t, nil, func(s ipam.Store) {
		freed, err := s.Collect(ctx, nil)
		if err != nil || len(freed) != 13 {
			t.Errorf("collected %v, %v", freed, err)
		}
	})
}

// TestRebootsWithKilledADDs: 50 times a host with a /24 starts 200 containers and reboots without a
// single DEL; each ADD may be killed at any point. The range is never exhausted, and no two
// containers of a boot get the same address.
func TestRebootsWithKilledADDs(t *testing.T) {
	t.Parallel()
	if !inMemory(t) {
		return
	}
	path := newPath(t)
	sets := storetest.Sets(t, "10.0.0.0/24")
	random := rand.New(rand.NewPCG(1, 2))
	for b := range 50 {
		holder := killProcess(t, path, boot(b), random)
		for i := range 180 {
			container := fmt.Sprintf("c%d-%d", b, i)
			a, err := addAndDie(path, boot(b), container, sets, random.IntN(20))
			if errors.Is(err, errDied) {
				continue
			}
			if other, reserved := holder[a]; reserved || err != nil {
				t.Fatalf("boot %d, container %d got %s of %q: %v", b, i, a, other, err)
			}
			holder[a] = container
		}
		network(path, boot(b)).Do(t, nil, func(s ipam.Store) {
			leases, err := s.Leases(ctx)
			for _, l := range leases {
				if l.Boot != ipam.BootCurrent || l.Owner.Container == "" {
					t.Errorf("boot %d: %s is %s", b, l, l.Boot)
				}
			}
			if err != nil || len(leases) < len(holder) || len(holder) < 100 {
				t.Errorf("boot %d: %d reservations for %d containers: %v", b, len(leases),
					len(holder), err)
			}
		})
		if t.Failed() {
			return
		}
	}
	wantConsistentIn(t, path, boot(49), sets)
}

var errDied = errors.New("died")

// addAndDie allocates an address in a process that ends after n changes or earlier, without
// rollback and without sealing a cache.
func addAndDie(
	path, boot, container string, sets []ipam.RangeSet, n int,
) (a netip.Addr, err error) {
	s, err := network(path, boot)(ctx, func(_ string, apply, _ func() error) error {
		if n--; n < 0 {
			return errDied
		}
		return apply()
	})
	if err != nil {
		return a, err
	}
	all, err := ipam.Allocate(ctx, s, ipam.Request{Owner: owner(container), Sets: sets})
	if err == nil && n == 0 {
		err = errDied
	}
	if err != nil {
		return a, errors.Join(err, filestore.Abandon(s))
	}
	return all[0].Addr, s.Close()
}

// killProcess kills a process that allocates 20 addresses at a random moment, and returns the
// addresses that it got.
func killProcess(t *testing.T, path, boot string, random *rand.Rand) map[netip.Addr]string {
	t.Helper()
	cmd := child("allocate", path, boot)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); stderr.Len() > 0 {
		t.Fatal(stderr.String())
	}
	holder := map[netip.Addr]string{}
	for _, a := range strings.Fields(stdout.String()) {
		holder[addr(a)] = "of the killed process"
	}
	return holder
}

// allocateMany allocates 20 addresses in a separate process and prints them.
func allocateMany(args []string) int {
	path, boot := args[0], args[1]
	sets := []ipam.RangeSet{{{Subnet: netip.MustParsePrefix("10.0.0.0/24")}}}
	err := ipam.CanonicalizeSets(sets)
	for i := 0; i < 20 && err == nil; i++ {
		var all []ipam.Allocation
		all, err = network(path, boot).
			Allocate(ctx, ipam.Request{Owner: owner(fmt.Sprint("k", i)), Sets: sets})
		if err == nil {
			fmt.Println(all[0].Addr)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
