// Package storetest tests the behaviour of [ipam.Store] implementations on which package ipam and
// the host-local plugin rely. Each implementation tests its files itself.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// Network opens the network of a test, as often as the test calls it.
type Network func(context.Context, ipam.Change) (ipam.Store, error)

// Run tests stores. newNetwork creates an empty network.
func Run(t *testing.T, newNetwork func(testing.TB) Network) {
	tests := []struct {
		name string
		run  func(*testing.T, Network)
	}{
		{"an empty network", emptyNetwork},
		{"addresses rotate", addressesRotate},
		{"an address has one holder", oneHolder},
		{"release frees the addresses of the owner", release},
		{"rollback restores everything", rollback},
		{"the next free address", nextFree},
		{"collect frees all other addresses", collect},
		{"a full set", fullSet},
		{"exclusive access while others wait", exclusive},
		{"waiting ends with the context", waitingEnds},
		{"many at once", manyAtOnce},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newNetwork(t))
		})
	}
}

// Tx is a transaction for tests. The zero value is empty.
type Tx struct{ undo []func() error }

// Do implements [ipam.Change].
func (tx *Tx) Do(op string, apply, undo func() error) error {
	if err := apply(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if undo != nil {
		tx.undo = append(tx.undo, undo)
	}
	return nil
}

// Rollback undoes all changes, newest first.
func (tx *Tx) Rollback() error {
	var errs []error
	for _, undo := range slices.Backward(tx.undo) {
		errs = append(errs, undo())
	}
	tx.undo = nil
	return errors.Join(errs...)
}

// Allocate opens the network and allocates like ADD of host-local: an error leaves no reservation.
func (n Network) Allocate(ctx context.Context, req ipam.Request) (_ []ipam.Allocation, err error) {
	var tx Tx
	s, err := n(ctx, tx.Do)
	if err != nil {
		return nil, err
	}
	all, err := ipam.Allocate(ctx, s, req)
	if err != nil {
		err = errors.Join(err, tx.Rollback())
	}
	return all, errors.Join(err, s.Close())
}

// Release opens the network and releases like DEL.
func (n Network) Release(ctx context.Context, o ipam.Owner) error {
	s, err := n(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.Release(ctx, o), s.Close())
}

// Sets returns canonical range sets of one range each.
func Sets(t testing.TB, subnets ...string) []ipam.RangeSet {
	t.Helper()
	var sets []ipam.RangeSet
	for _, subnet := range subnets {
		sets = append(sets, ipam.RangeSet{{Subnet: netip.MustParsePrefix(subnet)}})
	}
	if err := ipam.CanonicalizeSets(sets); err != nil {
		t.Fatal(err)
	}
	return sets
}

// State returns all reservations and the last addresses of two sets, without times.
func (n Network) State(t testing.TB) (state []string) {
	t.Helper()
	n.Do(t, nil, func(s ipam.Store) {
		leases, err := s.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			state = append(state, fmt.Sprintf("%s %s", l.Addr, l.Owner))
		}
		for i := range 2 {
			last, err := s.Last(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			if last.IsValid() {
				state = append(state, fmt.Sprintf("last %d %s", i, last))
			}
		}
	})
	return state
}

// Want fails the test unless the state is want.
func (n Network) Want(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.State(t)); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// Do opens the network for one operation.
func (n Network) Do(t testing.TB, change ipam.Change, operation func(ipam.Store)) {
	t.Helper()
	s, err := n(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	operation(s)
}
