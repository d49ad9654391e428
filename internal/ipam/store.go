package ipam

import "context"

// Store holds the reservations of one network. It is opened for one operation, during which no
// other process changes them, and then closed. It is not safe for concurrent use. Package storetest
// tests implementations.
type Store interface {
	Reservations
	// Release frees all addresses with a record of exactly this owner or, if there are none, the
	// addresses with a record of only its container. It continues after failures, returns them
	// joined, and succeeds if there is nothing to free.
	Release(ctx context.Context, o Owner) error
	// Collect frees every address with an owner that is not in keep. It also removes reservations
	// of an earlier boot, and damaged records. A record with only a container is kept if keep names
	// the container. Collect continues after failures and returns the freed leases, with the
	// failures joined.
	Collect(ctx context.Context, keep []Owner) ([]Lease, error)
	// Leases returns all reservations, sorted by address.
	Leases(ctx context.Context) ([]Lease, error)
	// Used returns the number of addresses of the canonical range that are in use.
	Used(ctx context.Context, r Range) (uint64, error)
	// Close makes the caches valid and releases the lock. Changes can be undone only before Close.
	Close() error
}

// Change makes a change by calling apply, and records undo to revert it. op names the change and
// its object. A nil undo makes the change permanent. The error wraps the error of apply. The method
// Do of a kernel.Tx is a Change.
type Change func(op string, apply, undo func() error) error
