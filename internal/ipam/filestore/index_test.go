package filestore

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestIndexWithCollisions: entries with colliding hashes are found and removed as in a map, through
// any number of changes.
func TestIndexWithCollisions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	x := newIndex(nil)
	model := map[entry]bool{}
	hashes := []uint64{0, 1, minSlots - 1, 2*minSlots - 1, 5 * minSlots}
	for range 5000 {
		e := entry{netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(20))}),
			hashes[random.IntN(len(hashes))]}
		if random.IntN(2) == 0 {
			if err := x.insert(e); err != nil {
				t.Fatal(err)
			}
			model[e] = true
		} else {
			if err := x.remove(e); err != nil {
				t.Fatal(err)
			}
			delete(model, e)
		}
		got, err := x.lookup(e.hash)
		if err != nil {
			t.Fatal(err)
		}
		var want []netip.Addr
		for other := range model {
			if other.hash == e.hash {
				want = append(want, other.addr)
			}
		}
		slices.SortFunc(got, netip.Addr.Compare)
		slices.SortFunc(want, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Fatalf("hash %d: got %v, want %v", e.hash, got, want)
		}
	}
	all, err := x.entries()
	if err != nil || len(all) != len(model) {
		t.Errorf("%d entries, want %d: %v", len(all), len(model), err)
	}
}

func TestIndexIsFull(t *testing.T) {
	t.Parallel()
	x := newIndex(nil)
	var err error
	n := 0
	for ; err == nil && n < 2*minSlots; n++ {
		err = x.insert(entry{netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
			hashOf(fmt.Sprint(n))})
	}
	if err != errFull || n != minSlots*3/4+1 {
		t.Errorf("insert %d: %v", n, err)
	}
}
