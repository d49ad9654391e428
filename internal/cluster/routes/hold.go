package routes

import (
	"context"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// Hold makes the kernel drop packets that leave the blocks of this node when their durations have
// elapsed, even if no program runs then; at once if a duration is not positive. It replaces all
// blocks in one transaction, in the network namespace of the calling thread. The error wraps
// [kernel.ErrNoNFT] if there are blocks and the kernel lacks nftables.
func Hold(ctx context.Context, left map[netip.Prefix]time.Duration) error {
	host, closeAll, err := kernel.OpenHost(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	return host.SetHolds(left)
}
