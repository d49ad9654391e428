package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
)

func owner(container string) ipam.Owner { return ipam.Owner{Container: container, IfName: "eth0"} }

// allocate returns the addresses or the error as text.
func allocate(t testing.TB, n Network, req ipam.Request) string {
	t.Helper()
	all, err := n.Allocate(t.Context(), req)
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, a := range all {
		text += a.Prefix().String() + " "
	}
	return text[:len(text)-1]
}

func mustRelease(t testing.TB, n Network, o ipam.Owner) {
	t.Helper()
	if err := n.Release(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func emptyNetwork(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/29", "2001:db8::/64")
	n.Do(t, nil, func(s ipam.Store) {
		held, err := s.Held(t.Context(), owner("c1"))
		if err != nil || len(held) > 0 {
			t.Errorf("held: %v, %v", held, err)
		}
		if err := s.Release(t.Context(), owner("c1")); err != nil {
			t.Errorf("release: %v", err)
		}
		if freed, err := s.Collect(t.Context(), nil); err != nil || len(freed) > 0 {
			t.Errorf("collect: %v, %v", freed, err)
		}
		if err := ipam.Available(t.Context(), s, sets); err != nil {
			t.Errorf("available: %v", err)
		}
		for _, set := range sets {
			if used, err := s.Used(t.Context(), set[0]); err != nil || used != 0 {
				t.Errorf("used: %d, %v", used, err)
			}
		}
	})
	n.Want(t)
}

func addressesRotate(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/29", "2001:db8::/64")
	for i, want := range []string{
		"10.0.0.2/29 2001:db8::2/64", "10.0.0.3/29 2001:db8::3/64", "10.0.0.4/29 2001:db8::4/64",
		"10.0.0.5/29 2001:db8::5/64", "10.0.0.6/29 2001:db8::6/64", "10.0.0.2/29 2001:db8::7/64",
	} {
		o := owner(fmt.Sprint("c", i))
		if got := allocate(t, n, ipam.Request{Owner: o, Sets: sets}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		mustRelease(t, n, o)
	}
	n.Want(t, "last 0 10.0.0.2", "last 1 2001:db8::7")
}

func oneHolder(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/29")
	if got := allocate(t, n, ipam.Request{Owner: owner("c1"), Sets: sets}); got != "10.0.0.2/29" {
		t.Fatal(got)
	}
	before := n.State(t)
	const duplicate = "failed to allocate for range 0: 10.0.0.2 has been allocated to c1, " +
		"duplicate allocation is not allowed"
	if got := allocate(t, n, ipam.Request{Owner: owner("c1"), Sets: sets}); got != duplicate {
		t.Errorf("again: %s", got)
	}
	other := netip.MustParseAddr("10.0.0.5")
	if got := allocate(t, n, ipam.Request{Owner: owner("c1"), Sets: sets,
		Addrs: []netip.Addr{other}}); got != duplicate {
		t.Errorf("again, with a requested address: %s", got)
	}
	n.Do(t, nil, func(s ipam.Store) {
		a := netip.MustParseAddr("10.0.0.2")
		err := s.Reserve(t.Context(), 0, a, owner("c2"))
		var inUse *ipam.InUseError
		if !errors.As(err, &inUse) || inUse.Holder.Addr != a || inUse.Holder.Owner != owner("c1") ||
			time.Since(inUse.Holder.Since).Abs() > time.Hour {
			t.Errorf("a reserved address: %v, %+v", err, inUse)
		}
	})
	if diff := cmp.Diff(before, n.State(t)); diff != "" {
		t.Errorf("refusals changed the state (-before +after):\n%s", diff)
	}
	if got := allocate(t, n, ipam.Request{Owner: owner("c2"), Sets: sets}); got != "10.0.0.3/29" {
		t.Errorf("another container: %s", got)
	}
}

func release(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/24", "10.1.0.0/24")
	eth0, eth1 := owner("c1"), ipam.Owner{Container: "c1", IfName: "eth1"}
	for _, o := range []ipam.Owner{eth0, eth1, owner("c2")} {
		allocate(t, n, ipam.Request{Owner: o, Sets: sets})
	}
	n.Do(t, nil, func(s ipam.Store) {
		held, err := s.Held(t.Context(), eth0)
		if err != nil || len(held) != 2 || held[0].Addr.String() != "10.0.0.2" ||
			held[1].Addr.String() != "10.1.0.2" {
			t.Errorf("held: %v, %v", held, err)
		}
	})
	mustRelease(t, n, eth0)
	mustRelease(t, n, eth0)
	mustRelease(t, n, owner("unknown"))
	n.Want(t, "10.0.0.3 container c1 interface eth1", "10.0.0.4 container c2 interface eth0",
		"10.1.0.3 container c1 interface eth1", "10.1.0.4 container c2 interface eth0",
		"last 0 10.0.0.4", "last 1 10.1.0.4")

	spaces := ipam.Owner{Container: " c3\n", IfName: "eth0"}
	allocate(t, n, ipam.Request{Owner: spaces, Sets: sets[:1]})
	mustRelease(t, n, owner("c2"))
	mustRelease(t, n, eth1)
	n.Want(t, "10.0.0.5 container c3 interface eth0", "last 0 10.0.0.5", "last 1 10.1.0.4")
	mustRelease(t, n, spaces)
	n.Want(t, "last 0 10.0.0.5", "last 1 10.1.0.4")
}

// rollback: an allocation that fails frees its own reservations, but not the owner's earlier ones.
func rollback(t *testing.T, n Network) {
	old, sets := Sets(t, "10.9.0.0/24"), Sets(t, "10.0.0.0/24", "10.1.0.0/30")
	allocate(t, n, ipam.Request{Owner: owner("c1"), Sets: old})
	allocate(t, n, ipam.Request{Owner: owner("c2"), Sets: sets})
	before := n.State(t)
	const full = "failed to allocate for range 1: no IP addresses available in range set: " +
		"10.1.0.1-10.1.0.2"
	for range 2 {
		if got := allocate(t, n, ipam.Request{Owner: owner("c1"), Sets: sets}); got != full {
			t.Errorf("got %s", got)
		}
	}
	if diff := cmp.Diff(before, n.State(t)); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
	if got := allocate(t, n,
		ipam.Request{Owner: owner("c3"), Sets: sets[:1]}); got != "10.0.0.3/24" {
		t.Errorf("the address after rollback: %s", got)
	}
}

func nextFree(t *testing.T, n Network) {
	for _, subnet := range []string{"10.0.0.0/24", "2001:db8::/64"} {
		r := Sets(t, subnet)[0][0]
		var tx Tx
		n.Do(t, tx.Do, func(s ipam.Store) {
			reserveSome(t, s, r)
			searches(t, s, r)
			if used, err := s.Used(t.Context(), r); err != nil || used != 96 {
				t.Errorf("used: %d, %v", used, err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			first, _ := r.At(1)
			if got := find(t, s, r, 1, 99); got != first {
				t.Errorf("%s after rollback: %s is free", subnet, got)
			}
		})
	}
}

// reserveSome reserves the first 100 addresses of r except those at the offsets 8, 15, 16 and 64.
func reserveSome(t *testing.T, s ipam.Store, r ipam.Range) {
	for offset := range uint64(100) {
		a, _ := r.At(offset)
		if err := s.Reserve(t.Context(), 0, a, owner(fmt.Sprint("c", offset))); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []string{"c8", "c15", "c16", "c64"} {
		if err := s.Release(t.Context(), owner(o)); err != nil {
			t.Fatal(err)
		}
	}
}

// searches looks for free addresses after reserveSome.
func searches(t *testing.T, s ipam.Store, r ipam.Range) {
	for _, test := range []struct{ from, to, want uint64 }{
		{0, 99, 8}, {8, 99, 8}, {8, 8, 8}, {9, 99, 15}, {15, 15, 15}, {16, 99, 16}, {17, 99, 64},
		{65, 200, 100}, {150, 200, 150},
	} {
		want, _ := r.At(test.want)
		if got := find(t, s, r, test.from, test.to); got != want {
			t.Errorf("%s from %d to %d: got %s, want %s", r.Subnet, test.from, test.to, got, want)
		}
	}
	for _, test := range [][2]uint64{{0, 7}, {0, 0}, {9, 14}, {17, 63}, {65, 99}} {
		if got := find(t, s, r, test[0], test[1]); got.IsValid() {
			t.Errorf("%s from %d to %d: got %s, want none", r.Subnet, test[0], test[1], got)
		}
	}
}

func find(t *testing.T, s ipam.Store, r ipam.Range, from, to uint64) netip.Addr {
	first, _ := r.At(from)
	last, _ := r.At(to)
	a, err := s.NextFree(t.Context(), r, first, last)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func collect(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/24")
	for _, c := range []string{"c1", "c2", "c3"} {
		allocate(t, n, ipam.Request{Owner: owner(c), Sets: sets})
	}
	allocate(t, n, ipam.Request{Owner: ipam.Owner{Container: "c1", IfName: "eth1"}, Sets: sets})
	n.Do(t, nil, func(s ipam.Store) {
		freed, err := s.Collect(t.Context(),
			[]ipam.Owner{owner("c1"), {Container: " c3 ", IfName: "eth0"}, owner("unknown")})
		var got []string
		for _, l := range freed {
			got = append(got, l.Addr.String()+" "+l.Owner.String())
		}
		if diff := cmp.Diff([]string{"10.0.0.3 container c2 interface eth0",
			"10.0.0.5 container c1 interface eth1"}, got); diff != "" || err != nil {
			t.Errorf("%v, freed (-want +got):\n%s", err, diff)
		}
	})
	n.Want(t, "10.0.0.2 container c1 interface eth0", "10.0.0.4 container c3 interface eth0",
		"last 0 10.0.0.5")
	mustRelease(t, n, owner("c1"))
	n.Want(t, "10.0.0.4 container c3 interface eth0", "last 0 10.0.0.5")
}

func fullSet(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/29")
	for i := range 5 {
		allocate(t, n, ipam.Request{Owner: owner(fmt.Sprint("c", i)), Sets: sets})
	}
	_, err := n.Allocate(t.Context(), ipam.Request{Owner: owner("late"), Sets: sets})
	var exhausted *ipam.ExhaustedError
	if !errors.As(err, &exhausted) || exhausted.Used != 5 || len(exhausted.Oldest) == 0 ||
		exhausted.Oldest[0].Owner != owner("c0") {
		t.Errorf("got %v, %+v", err, exhausted)
	}
	n.Do(t, nil, func(s ipam.Store) {
		if err := ipam.Available(t.Context(), s, sets); !errors.As(err, &exhausted) {
			t.Errorf("available: %v", err)
		}
	})
	mustRelease(t, n, owner("c3"))
	if got := allocate(t, n, ipam.Request{Owner: owner("late"), Sets: sets}); got != "10.0.0.5/29" {
		t.Errorf("the only free address: %s", got)
	}
}

func exclusive(t *testing.T, n Network) {
	done, released := make(chan error), make(chan struct{})
	n.Do(t, nil, func(s ipam.Store) {
		go func() {
			_, err := n.Allocate(t.Context(),
				ipam.Request{Owner: owner("c2"), Sets: Sets(t, "10.0.0.0/24")})
			select {
			case <-released:
			default:
				err = errors.Join(err, errors.New("did not wait"))
			}
			done <- err
		}()
		select {
		case err := <-done:
			t.Errorf("two at a time: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(released)
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func waitingEnds(t *testing.T, n Network) {
	n.Do(t, nil, func(ipam.Store) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := n.Allocate(ctx, ipam.Request{Owner: owner("c2"),
			Sets: Sets(t, "10.0.0.0/24")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	if got := allocate(t, n,
		ipam.Request{Owner: owner("c2"), Sets: Sets(t, "10.0.0.0/24")}); got != "10.0.0.2/24" {
		t.Errorf("afterwards: %s", got)
	}
}

// manyAtOnce allocates and releases with 64 owners at a time and room for 61: no address ever has
// two holders, and all are free in the end.
func manyAtOnce(t *testing.T, n Network) {
	sets := Sets(t, "10.0.0.0/26", "2001:db8::/64")
	holders := holders{of: map[netip.Addr]string{}}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for round := range 4 {
				o := owner(fmt.Sprintf("c%d-%d", i, round))
				all, err := n.Allocate(t.Context(), ipam.Request{Owner: o, Sets: sets})
				if exhausted := (*ipam.ExhaustedError)(nil); errors.As(err, &exhausted) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				holders.add(t, o.Container, all)
				holders.remove(all)
				if err := n.Release(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, line := range n.State(t) {
		if !strings.HasPrefix(line, "last") {
			t.Errorf("left: %s", line)
		}
	}
}

// holders are the containers that hold addresses.
type holders struct {
	mu sync.Mutex
	of map[netip.Addr]string
}

func (h *holders) add(t *testing.T, container string, all []ipam.Allocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range all {
		if other, ok := h.of[a.Addr]; ok {
			t.Errorf("%s has two holders: %s and %s", a.Addr, other, container)
		}
		h.of[a.Addr] = container
	}
}

func (h *holders) remove(all []ipam.Allocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range all {
		delete(h.of, a.Addr)
	}
}
