// Package storetest tests implementations of [ipam.Store]: the behaviour that package ipam and the host-local plugin rely
// on. Each implementation tests its files itself.
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

// Network opens a network that only one test uses, as often as the test wants.
type Network func(context.Context, ipam.Change) (ipam.Store, error)

// Run tests stores. newNetwork makes an empty network.
func Run(t *testing.T, newNetwork func(testing.TB) Network) {
	tests := []struct {
		name string
		run  func(*testing.T, Network)
	}{
		{"an empty network", emptyNetwork},
		{"addresses rotate", addressesRotate},
		{"an address has one holder", oneHolder},
		{"release frees what the owner holds", release},
		{"rollback restores everything", rollback},
		{"the next free address", nextFree},
		{"collect frees what is not kept", collect},
		{"a full set", fullSet},
		{"what is done while others wait", exclusive},
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

// Do is a [ipam.Change].
func (tx *Tx) Do(op string, apply, undo func() error) error {
	if err := apply(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if undo != nil {
		tx.undo = append(tx.undo, undo)
	}
	return nil
}

// Rollback takes back what was done, newest first.
func (tx *Tx) Rollback() error {
	var errs []error
	for _, undo := range slices.Backward(tx.undo) {
		errs = append(errs, undo())
	}
	tx.undo = nil
	return errors.Join(errs...)
}

// Allocate opens the network and allocates as the ADD of host-local does: an error leaves nothing.
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

// Release opens the network and releases as DEL does.
func (n Network) Release(ctx context.Context, o ipam.Owner) error {
	s, err := n(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.Release(ctx, o), s.Close())
}

// Sets makes canonical range sets of one range each.
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

// State describes all reservations and the last addresses of two sets, without times.
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

// Want compares the state.
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
