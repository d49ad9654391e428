package all

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Pool is how much of a range of addresses is reserved.
type Pool struct {
	Network string // name of the network
	Range   string // its first and its last address, "10.1.0.1-10.1.0.254"
	Size    uint64 // addresses in it; [math.MaxUint64] stands for that many and more
	Used    uint64 // those that are reserved, for whomever
}

// Pools returns the ranges of networks that have their addresses from host-local, by network. They suit metrics: a Pool can
// be converted to one of package network/metrics. It waits for who is just changing reservations until ctx ends. The error
// joins those of configurations and reservations that cannot be read; the rest is returned in any case.
func Pools(ctx context.Context, lists []*cni.List) ([]Pool, error) {
	found, err := hostlocal.Pools(ctx, lists)
	errs := []error{err}
	var pools []Pool
	for _, p := range found {
		errs = append(errs, p.Invalid)
		for _, r := range p.Ranges {
			pools = append(pools, Pool{Network: p.Network, Range: r.String(), Size: r.Size(), Used: r.Used})
		}
	}
	return pools, errors.Join(errs...)
}
