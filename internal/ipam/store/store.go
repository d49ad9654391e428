// Package store says what a store of address reservations is. Implementations live below, the tests they share in
// storetest. What address to reserve is decided in package ipam.
package store

import (
	"context"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// Store holds the reservations of one network. It is opened for one operation, during which nobody else changes them,
// and then closed. It is for one goroutine.
type Store interface {
	ipam.Reservations
	// Release frees all addresses whose records name exactly this owner or, when there are none, those whose records name
	// only its container. It goes on past failures, returns them joined, and succeeds when there is nothing to free.
	Release(ctx context.Context, o ipam.Owner) error
	// Collect frees every address whose owner is not in keep and whatever holds nothing: what an earlier boot
	// reserved, and debris. A record that names only a container is kept if keep names the container. It goes on past
	// failures and returns what it freed, with the failures joined.
	Collect(ctx context.Context, keep []ipam.Owner) ([]ipam.Lease, error)
	// Leases lists all reservations by address.
	Leases(ctx context.Context) ([]ipam.Lease, error)
	// Used is how many addresses of the canonical range are taken.
	Used(ctx context.Context, r ipam.Range) (uint64, error)
	// Close seals what was done and lets others in. A change can be undone only before.
	Close() error
}

// Change makes a change by calling apply, and remembers undo to take it back. op names the change with its object. A nil
// undo says that the change stays. Its error wraps that of apply. The method Do of a kernel.Tx is one.
type Change func(op string, apply, undo func() error) error
