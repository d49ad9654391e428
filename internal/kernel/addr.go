package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Of lists the addresses of a link with their prefix lengths, both families.
func (s Addrs) Of(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Of(l) }

// Kept lists the addresses of a link that somebody has given it for good, see [netlink.Addrs.Kept].
func (s Addrs) Kept(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Kept(l) }

// Add adds an address to a link. An IPv4 prefix shorter than /31 gets its broadcast address. The error wraps
// [unix.EEXIST] if the link has the address already.
func (s Addrs) Add(l Link, addr netip.Prefix) error {
	return s.space.addAddr(l, addr, s.space.rt.Addrs.Add)
}

// AddOptimistic is AddAddr for an address that can be used while duplicates of it are looked for, where the sysctl
// optimistic_dad of the link lets it (RFC 4429).
func (s Addrs) AddOptimistic(l Link, addr netip.Prefix) error {
	return s.space.addAddr(l, addr, s.space.rt.Addrs.AddOptimistic)
}

func (s *Space) addAddr(l Link, addr netip.Prefix, add func(Link, netip.Prefix) error) error {
	return s.tx.Do(addrOp(l, addr),
		func() error { return add(l, addr) },
		func() error { return errorOf(s.rt.Addrs.Delete(l, addr)) })
}

// EnsureGateway adds the address of a gateway to a link, unless it is there. An IPv6 address is not checked for
// duplicates, so that it answers at once. It is not undone: where others share the link they may rely on it from the
// moment it exists.
func (s Addrs) EnsureGateway(l Link, addr netip.Prefix) (added bool, err error) {
	err = s.space.tx.Do(addrOp(l, addr), func() error {
		err := s.space.rt.Addrs.AddGateway(l, addr)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		added = err == nil
		return err
	}, nil)
	return added, err
}

// Delete removes an address from a link; one that is gone is as good as removed. Undone by adding it again.
func (s Addrs) Delete(l Link, addr netip.Prefix) error {
	return s.space.tx.setChange("delete "+addrOp(l, addr),
		func() (bool, error) { return s.space.rt.Addrs.Delete(l, addr) },
		func() error {
			err := s.space.rt.Addrs.Add(l, addr)
			if errors.Is(err, unix.EEXIST) {
				return nil
			}
			return present(err)
		})
}

func addrOp(l Link, addr netip.Prefix) string { return fmt.Sprintf("addr %s dev %s", addr, l.Name) }

// DuplicateError says that duplicate address detection has found an address in use by another node.
type DuplicateError = netlink.DuplicateError

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

// Autoconf is what the kernel has made of router advertisements for a link (RFC 4862).
type Autoconf = netlink.Autoconf

// Autoconf reads what the kernel has made of router advertisements for a link.
func (s Addrs) Autoconf(l Link) (Autoconf, error) { return s.space.rt.Addrs.Autoconf(l) }

// WaitAutoconf waits until the kernel has made an address of router advertisements, and all that it has made can be used.
func (s Addrs) WaitAutoconf(ctx context.Context, l Link) error {
	return s.space.rt.Addrs.WaitAutoconf(ctx, l)
}
