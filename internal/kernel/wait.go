package kernel

import (
	"context"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel/rtnl"
)

// DuplicateError says that duplicate address detection has found an address in use by another node.
type DuplicateError = rtnl.DuplicateError

// WaitUp waits until the operational state of l is up. When ctx is done before, the error names the state.
func (s *Space) WaitUp(ctx context.Context, l Link) error { return s.rt.WaitUp(ctx, l) }

// WaitDAD waits until duplicate address detection has finished on all IPv6 addresses of l (RFC 4862 section 5.4). The
// error is a [*DuplicateError] as soon as one of them is found in use elsewhere. A link that is down is not waited for, and
// reaching the deadline of ctx is an error only if its operational state is up: before, detection does not even start.
func (s *Space) WaitDAD(ctx context.Context, l Link) error { return s.rt.WaitDAD(ctx, l) }

// Duplicates lists the IPv6 addresses of a link that duplicate address detection has found in use by another node, so that
// the kernel does not use them.
func (s *Space) Duplicates(l Link) ([]netip.Prefix, error) { return s.rt.Duplicates(l) }
