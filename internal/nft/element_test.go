package nft_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

type hotel struct {
	*nft.Conn
	t  testing.TB
	ns *testnet.Namespace
}

func newHotel(t testing.TB) hotel {
	t.Helper()
	ns, c := setup(t)
	return hotel{c, t, ns}
}

func (h hotel) put(tag string, entries ...[]nft.Element) (undo func()) {
	h.t.Helper()
	back, err := h.Apply(h.t.Context(),
		nft.Request{Owner: tag, Elements: slices.Concat(entries...)})
	if err != nil {
		h.t.Fatal(err)
	}
	return func() {
		h.t.Helper()
		if err := back(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}

func (h hotel) take(tag string) {
	h.t.Helper()
	if _, err := h.Remove(h.t.Context(), nft.Rooms, func(c string) bool { return c == tag },
		nil); err != nil {
		h.t.Error(err)
	}
}

func (h hotel) expect(want ...string) {
	h.t.Helper()
	list, err := h.List(h.t.Context(), nft.Rooms)
	if err != nil {
		h.t.Error(err)
	}
	var got []string
	for _, x := range list {
		got = append(got, strings.TrimSpace(x.Set+": "+x.Text+" "+x.Comment))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		h.t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeptByUsers checks that a shared element exists from the first of its users to the last, in
// whatever order they leave.
func TestKeptByUsers(t *testing.T) {
	t.Parallel()
	h := newHotel(t)
	h.put("a", nft.InRoom("red", "anne"))
	undo := h.put("b", nft.InRoom("red", "bert"), nft.InRoom("blue", "bert"))
	h.expect("guests: blue bert b", "guests: red anne a", "guests: red bert b", "rooms: blue",
		"rooms: red")
	undo()
	h.expect("guests: red anne a", "rooms: red")
	h.put("b", nft.InRoom("red", "bert"), nft.InRoom("blue", "bert"))
	h.take("a")
	h.expect("guests: blue bert b", "guests: red bert b", "rooms: blue", "rooms: red")
	h.put("b", nft.InRoom("blue", "bert")) // its other elements are removed
	h.expect("guests: blue bert b", "rooms: blue")
	h.take("b")
	h.expect()
	h.put("c", nft.InRoom("red", "carl"))()
	h.expect()
}

func TestConflict(t *testing.T) {
	t.Parallel()
	h := newHotel(t)
	h.put("a", []nft.Element{nft.Seat("1"), nft.Seat("2")})
	undo, err := h.Apply(t.Context(),
		nft.Request{Owner: "b", Elements: []nft.Element{nft.Seat("2"), nft.Seat("3")}})
	if err == nil || !strings.Contains(err.Error(), "seat 2 is already in use") {
		t.Errorf("got %v", err)
	}
	if undo != nil {
		t.Error("a conflict returned an undo")
	}
	h.expect("seats: 1 a", "seats: 2 a")
	// Apply applies all requests that do not conflict.
	_, err = h.Apply(t.Context(), nft.Request{Owner: "b", Elements: []nft.Element{nft.Seat("1")}},
		nft.Request{Owner: "c", Elements: []nft.Element{nft.Seat("4")}})
	if err == nil || !strings.Contains(err.Error(), "seat 1 is already in use") {
		t.Errorf("got %v", err)
	}
	h.expect("seats: 1 a", "seats: 2 a", "seats: 4 c")
}

func TestFullSet(t *testing.T) {
	t.Parallel()
	h := newHotel(t)
	var seats []nft.Element
	for i := range 65 {
		seats = append(seats, nft.Seat(fmt.Sprint(i)))
	}
	if _, err := h.Apply(t.Context(), nft.Request{Owner: "a", Elements: seats}); err == nil ||
		!strings.Contains(err.Error(), "is full") {
		t.Errorf("got %v", err)
	}
	h.expect()
}

// TestManyRequests checks that rule sets share a transaction, and that an element that several
// owners request exists once.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	h := newHotel(t)
	var requests []nft.Request
	var want []string
	for i := range 200 {
		tag := fmt.Sprintf("owner%03d", i)
		requests = append(requests,
			nft.Request{Owner: tag,
				Elements: append(nft.InRoom("red", tag),
					masqueraded(t, fmt.Sprintf("10.1.%d.2/24", i))...)})
		want = append(want, "guests: red "+tag+" "+tag)
	}
	before := generation(t, h.ns)
	undo, err := h.Apply(t.Context(), requests...)
	if err != nil {
		t.Fatal(err)
	}
	after := generation(t, h.ns)
	if after != before+1 {
		t.Errorf("%d transactions", after-before)
	}
	h.expect(append(want, "rooms: red")...)
	if list, err := h.List(t.Context(), nft.Masquerading); len(list) != 400 || err != nil {
		t.Errorf("%d masqueraded, %v", len(list), err)
	}
	if _, err := h.Apply(t.Context(), requests...); err != nil {
		t.Fatal(err)
	}
	if again := generation(t, h.ns); again != after {
		t.Errorf("applied again: %d transactions", again-after)
	}
	if err := undo(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	h.expect()
}

// TestUsersAtOnce removes the last user while other users are added. A room must exist exactly as
// long as it has a guest.
func TestUsersAtOnce(t *testing.T) {
	t.Parallel()
	h := newHotel(t)
	var wg sync.WaitGroup
	for i := range 20 {
		one := hotel{open(t, h.ns), t, h.ns}
		wg.Go(func() {
			tag := fmt.Sprintf("owner%d", i)
			for range 10 {
				if _, err := one.Apply(t.Context(),
					nft.Request{Owner: tag, Elements: nft.InRoom("red", tag)}); err != nil {
					t.Error(err)
				}
				if missing, err := lacks(t, one.Conn,
					nft.Request{Owner: tag, Elements: nft.InRoom("red", tag)}); len(missing) != 0 ||
					err != nil {
					t.Errorf("%s: missing %v, %v", tag, missing, err)
				}
				one.take(tag)
			}
		})
	}
	wg.Wait()
	h.expect()
}

// lacks returns the elements that one request lacks.
func lacks(t testing.TB, c *nft.Conn, r nft.Request) ([]nft.Held, error) {
	t.Helper()
	list, err := c.Missing(t.Context(), r)
	return slices.Concat(list...), err
}

// masqueraded returns the elements of one address.
func masqueraded(t testing.TB, prefix string) []nft.Element {
	t.Helper()
	entries, err := nft.Masq{}.Elements(netip.MustParsePrefix(prefix))
	must(t, err)
	return entries
}
