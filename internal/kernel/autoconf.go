package kernel

import (
	"context"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Autoconf is what the kernel has made of router advertisements for a link (RFC 4862).
type Autoconf = netlink.Autoconf

// Autoconf reads what the kernel has made of router advertisements for a link.
func (s Addrs) Autoconf(l Link) (Autoconf, error) { return s.space.rt.Addrs.Autoconf(l) }

// WaitAutoconf waits until the kernel has made an address of router advertisements, and all that it has made can be used.
func (s Addrs) WaitAutoconf(ctx context.Context, l Link) error {
	return s.space.rt.Addrs.WaitAutoconf(ctx, l)
}
