package ipam

import "context"

// Store holds the reservations of one network. It is opened for one operation, during which no other process changes
// them, and then closed. It is for one goroutine. Package storetest tests implementations.
type Store interface {
	Reservations
	// Release frees all addresses whose records name exactly this owner or, when there are none, the addresses whose
	// records name only its container. It continues past failures, returns them joined, and succeeds when there is
	// nothing to free.
	Release(ctx context.Context, o Owner) error
	// Collect frees every address whose owner is not in keep. It also removes reservations of an earlier boot, and debris.
	// A record that names only a container is kept if keep names the container. It continues
	// past failures and returns the leases that it freed, with the failures joined.
	Collect(ctx context.Context, keep []Owner) ([]Lease, error)
	// Leases lists all reservations by address.
	Leases(ctx context.Context) ([]Lease, error)
	// Used returns the number of addresses of the canonical range that are in use.
	Used(ctx context.Context, r Range) (uint64, error)
	// Close seals the changes and releases the lock. A change can be undone only before.
	Close() error
}

// Change makes a change by calling apply, and remembers undo to revert it. op names the change with its object. A nil
// undo means that the change stays. Its error wraps the error of apply. The method Do of a kernel.Tx is a Change.
type Change func(op string, apply, undo func() error) error
