package all

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Pool is the use of a range of addresses.
type Pool struct {
	Network string // name of the network
	Range   string // the first and the last address, "10.1.0.1-10.1.0.254"
	Size    uint64 // the number of addresses, at most [math.MaxUint64]
	Used    uint64 // the number of reservations by all attachments
}

// Pools returns the ranges of all networks with host-local, sorted by network. A Pool can be
// converted to a pool of package network/metrics. Pools waits for operations that hold the lock
// until ctx ends. The error joins the errors of configurations and reservations that cannot be
// read; the result contains all other pools.
func Pools(ctx context.Context, lists []*cni.List) ([]Pool, error) {
	found, err := hostlocal.Pools(ctx, lists)
	errs := []error{err}
	var pools []Pool
	for _, p := range found {
		errs = append(errs, p.Invalid)
		for _, r := range p.Ranges {
			pools = append(pools, Pool{Network: p.Network, Range: r.String(), Size: r.Size(),
				Used: r.Used})
		}
	}
	return pools, errors.Join(errs...)
}
