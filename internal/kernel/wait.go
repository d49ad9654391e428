package kernel

import (
	"context"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// DuplicateError says that duplicate address detection has found an address in use by another node.
type DuplicateError = netlink.DuplicateError

// WaitUp waits until the operational state of l is up. When ctx is done before, the error names the state.
func (s Links) WaitUp(ctx context.Context, l Link) error { return s.space.rt.Links.WaitUp(ctx, l) }

// dadWait is how long duplicate address detection may take.
const dadWait = 5 * time.Second

// WaitDAD waits up to 5 s until duplicate address detection has finished on all IPv6 addresses of l (RFC 4862 section 5.4):
// before, an address cannot be a source. The error is a [*DuplicateError] as soon as one of them is found in use elsewhere. A
// link that is down is not waited for, and its time being over is an error only if its operational state is up: without a
// carrier, detection does not even start.
func (s Addrs) WaitDAD(ctx context.Context, l Link) error {
	wait, cancel := context.WithTimeout(ctx, dadWait)
	defer cancel()
	return s.space.rt.Addrs.WaitDAD(wait, l)
}

// Duplicates lists the IPv6 addresses of a link that duplicate address detection has found in use by another node, so that
// the kernel does not use them.
func (s Addrs) Duplicates(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Duplicates(l) }

// answerWait is how long the owner of an address may take to answer. A container on the same host needs
// microseconds.
const answerWait = time.Second

// Answers reports whether the owner of an address that the host reaches directly answers. An address that
// is the host's own, or that packets leave for through a gateway, belongs to no container here.
func (s Addrs) Answers(a netip.Addr) (bool, error) {
	hop, ok, err := s.space.rt.Routes.Lookup(a)
	if err != nil || !ok || hop.Local || hop.Gateway {
		return false, err
	}
	link, err := s.space.rt.Links.ByIndex(hop.Link)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(s.space.tx.ctx, answerWait)
	defer cancel()
	return s.space.rt.Addrs.Answers(ctx, link, a)
}
