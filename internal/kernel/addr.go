package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Addrs lists the addresses of a link with their prefix lengths, both families.
func (s *Space) Addrs(l Link) ([]netip.Prefix, error) { return s.rt.Addrs(l) }

// KeptAddrs lists the addresses of a link that somebody has given it for good, see [netlink.Conn.KeptAddrs].
func (s *Space) KeptAddrs(l Link) ([]netip.Prefix, error) { return s.rt.KeptAddrs(l) }

// AddAddr adds an address to a link. An IPv4 prefix shorter than /31 gets its broadcast address. The error wraps
// [unix.EEXIST] if the link has the address already.
func (s *Space) AddAddr(l Link, addr netip.Prefix) error { return s.addAddr(l, addr, s.rt.AddAddr) }

// AddOptimistic is AddAddr for an address that can be used while duplicates of it are looked for, where the sysctl
// optimistic_dad of the link lets it (RFC 4429).
func (s *Space) AddOptimistic(l Link, addr netip.Prefix) error {
	return s.addAddr(l, addr, s.rt.AddOptimistic)
}

func (s *Space) addAddr(l Link, addr netip.Prefix, add func(Link, netip.Prefix) error) error {
	return s.tx.Do(addrOp(l, addr),
		func() error { return add(l, addr) },
		func() error {
			_, err := s.rt.DelAddr(l, addr)
			return err
		})
}

// EnsureGateway adds the address of a gateway to a link, unless it is there. An IPv6 address is not checked for
// duplicates, so that it answers at once. It is not undone: where others share the link they may rely on it from the
// moment it exists.
func (s *Space) EnsureGateway(l Link, addr netip.Prefix) (added bool, err error) {
	err = s.tx.Do(addrOp(l, addr), func() error {
		err := s.rt.AddGateway(l, addr)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		added = err == nil
		return err
	}, nil)
	return added, err
}

// DelAddr removes an address from a link; one that is gone is as good as removed. Undone by adding it again.
func (s *Space) DelAddr(l Link, addr netip.Prefix) error {
	existed := false
	return s.tx.set("delete "+addrOp(l, addr),
		func() (err error) {
			existed, err = s.rt.DelAddr(l, addr)
			existed = existed || Exhausted(err)
			return err
		},
		func() error {
			if !existed {
				return nil
			}
			err := s.rt.AddAddr(l, addr)
			if errors.Is(err, unix.EEXIST) {
				return nil
			}
			return present(err)
		})
}

func addrOp(l Link, addr netip.Prefix) string { return fmt.Sprintf("addr %s dev %s", addr, l.Name) }
