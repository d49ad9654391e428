package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
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
		func() error {
			_, err := s.rt.Addrs.Delete(l, addr)
			return err
		})
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
	existed := false
	return s.space.tx.set("delete "+addrOp(l, addr),
		func() (err error) {
			existed, err = s.space.rt.Addrs.Delete(l, addr)
			existed = existed || Exhausted(err)
			return err
		},
		func() error {
			if !existed {
				return nil
			}
			err := s.space.rt.Addrs.Add(l, addr)
			if errors.Is(err, unix.EEXIST) {
				return nil
			}
			return present(err)
		})
}

func addrOp(l Link, addr netip.Prefix) string { return fmt.Sprintf("addr %s dev %s", addr, l.Name) }
