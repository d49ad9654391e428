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

// Of lists the IPv4 and IPv6 addresses of a link with their prefix lengths.
func (s Addrs) Of(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Of(l) }

// Kept lists the permanent addresses that an administrator or program added to a link, see
// [netlink.Addrs.Kept].
func (s Addrs) Kept(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Kept(l) }

// Global lists the addresses of global scope that routers have not assigned, see
// [netlink.Addrs.Global].
func (s Addrs) Global(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Global(l) }

// Add adds an address to a link. An IPv4 prefix shorter than /31 gets its broadcast address. The
// error wraps [unix.EEXIST] if the link already has the address.
func (s Addrs) Add(l Link, addr netip.Prefix) error {
	return s.space.addAddr(l, addr, s.space.rt.Addrs.Add)
}

// AddOptimistic is Add for an address that can be used during duplicate address detection, if the
// sysctl optimistic_dad of the link is on (RFC 4429).
func (s Addrs) AddOptimistic(l Link, addr netip.Prefix) error {
	return s.space.addAddr(l, addr, s.space.rt.Addrs.AddOptimistic)
}

func (s *Space) addAddr(l Link, addr netip.Prefix, add func(Link, netip.Prefix) error) error {
	return s.tx.Do(addrOp(l, addr),
		func() error { return add(l, addr) },
		func() error { return errorOf(s.rt.Addrs.Delete(l, addr)) })
}

// EnsureGateway adds the address of a gateway to a link if it is missing, without duplicate address
// detection for IPv6, so that the address answers at once. Rollback keeps the address, because
// other users of a shared link may already rely on it.
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

// Delete removes an address from a link. It succeeds if the link does not have the address.
// Rollback adds the address again.
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

// DuplicateError reports that duplicate address detection found an address in use by another node.
type DuplicateError = netlink.DuplicateError

// dadWait limits how long WaitDAD waits.
const dadWait = 5 * time.Second

// WaitDAD waits up to 5 s until duplicate address detection has finished for all IPv6 addresses of
// l (RFC 4862 section 5.4); until then an address cannot be a source. It returns a
// [*DuplicateError] as soon as one of them is found in use elsewhere. It does not wait for a link
// that is down. A timeout is an error only if the operational state of the link is up: without a
// carrier, detection does not start.
func (s Addrs) WaitDAD(ctx context.Context, l Link) error {
	wait, cancel := context.WithTimeout(ctx, dadWait)
	defer cancel()
	return s.space.rt.Addrs.WaitDAD(wait, l)
}

// Duplicates lists the IPv6 addresses of a link that duplicate address detection found in use by
// another node. The kernel does not use them.
func (s Addrs) Duplicates(l Link) ([]netip.Prefix, error) { return s.space.rt.Addrs.Duplicates(l) }

// answerWait limits how long Answers waits. A container on the same host answers within
// microseconds.
const answerWait = time.Second

// Answers reports whether the owner of a directly reachable address answers. It returns false for
// the host's own addresses and for addresses behind a gateway, which belong to no container here.
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

// Autoconf describes the addresses and routes that the kernel configured for a link from router
// advertisements (RFC 4862).
type Autoconf = netlink.Autoconf

// Autoconf returns the configuration of a link from router advertisements.
func (s Addrs) Autoconf(l Link) (Autoconf, error) { return s.space.rt.Addrs.Autoconf(l) }

// WaitAutoconf waits until the kernel has configured an address from router advertisements, and all
// addresses from them can be used.
func (s Addrs) WaitAutoconf(ctx context.Context, l Link) error {
	return s.space.rt.Addrs.WaitAutoconf(ctx, l)
}
