package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// StoredAddr is an address of a link with all its attributes: flags, lifetimes, peer. It can be
// restored unchanged.
type StoredAddr struct {
	Addr       netip.Prefix
	Tentative  bool // the kernel is looking for duplicates of it, or has found one
	Optimistic bool // it can be used during that time (RFC 4429)

	flags uint32 // IFA_F_…
	scope uint8  // RT_SCOPE_…
	// The kernel's message. As a request: the kernel ignores flags that are states.
	message []byte
}

// unusable reports whether an address cannot be used until duplicate address detection (RFC 4862
// section 5.4) has finished.
func (a StoredAddr) unusable() bool { return a.Tentative && !a.Optimistic }

// Of lists the addresses of a link with their prefix lengths, in both families.
func (c Addrs) Of(l Link) ([]netip.Prefix, error) {
	return c.prefixes(l, unix.AF_UNSPEC, func(StoredAddr) bool { return true })
}

// Kept lists the permanent addresses of a link. It leaves out addresses with a lifetime, which
// their source assigns again, and link-local addresses of IPv6, which the kernel assigns. Within
// one network, the first address is the primary one, and the others depend on it.
func (c Addrs) Kept(l Link) ([]netip.Prefix, error) {
	return c.prefixes(l, unix.AF_UNSPEC, func(a StoredAddr) bool {
		ip := a.Addr.Addr()
		return a.flags&unix.IFA_F_PERMANENT != 0 && (ip.Is4() || !ip.IsLinkLocalUnicast())
	})
}

// Global lists the addresses of a link with global scope that routers on the link have not assigned:
// all of IPv4, and of IPv6 those without a lifetime.
func (c Addrs) Global(l Link) ([]netip.Prefix, error) {
	return c.prefixes(l, unix.AF_UNSPEC, func(a StoredAddr) bool {
		return a.scope == unix.RT_SCOPE_UNIVERSE &&
			(a.Addr.Addr().Is4() || a.flags&unix.IFA_F_PERMANENT != 0)
	})
}

// Duplicates lists the addresses of a link that duplicate address detection has found in use
// elsewhere.
func (c Addrs) Duplicates(l Link) ([]netip.Prefix, error) {
	return c.prefixes(l, unix.AF_INET6, func(a StoredAddr) bool {
		return a.flags&unix.IFA_F_DADFAILED != 0
	})
}

func (c Addrs) prefixes(
	l Link, family uint8, match func(StoredAddr) bool,
) (list []netip.Prefix, err error) {
	all, err := c.list(l, family)
	for _, a := range all {
		if match(a) {
			list = append(list, a.Addr)
		}
	}
	return list, err
}

// Stored lists the IPv6 addresses of a link. IPv4 addresses survive the changes that delete IPv6
// addresses.
func (c Addrs) Stored(l Link) ([]StoredAddr, error) { return c.list(l, unix.AF_INET6) }

func (c Addrs) list(l Link, family uint8) ([]StoredAddr, error) {
	of := unix.IfAddrmsg{Family: family, Index: uint32(l.Index)}
	list, err := list(c.conn, unix.RTM_GETADDR, of, nil,
		func(list []StoredAddr, m []byte) ([]StoredAddr, error) {
			a, index, err := readAddr(m)
			if err != nil || index != l.Index {
				return list, err
			}
			return append(list, a), nil
		})
	if err != nil {
		return nil, fmt.Errorf("addresses of link %q: %w", l.Name, err)
	}
	return list, nil
}

// readAddr decodes an address and the index of its link.
func readAddr(m []byte) (a StoredAddr, index int, err error) {
	var about unix.IfAddrmsg
	attributes, err := ReadBody(m, &about)
	var local, remote netip.Addr
	a.flags, a.scope, a.message = uint32(about.Flags), about.Scope, slices.Clone(m)
	for kind, v := range Attributes(attributes) {
		switch kind {
		case unix.IFA_LOCAL: // only with IPv4, and with IPv6 if there is a peer
			local, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS:
			remote, _ = netip.AddrFromSlice(v)
		case unix.IFA_FLAGS:
			a.flags = uint32(number(v))
		}
	}
	if !local.IsValid() {
		local = remote
	}
	a.Addr = netip.PrefixFrom(local, int(about.Prefixlen))
	a.Tentative = a.flags&unix.IFA_F_TENTATIVE != 0
	a.Optimistic = a.flags&unix.IFA_F_OPTIMISTIC != 0
	return a, int(about.Index), err
}

// Add adds an address, without label and with scope global. An IPv4 prefix shorter than /31
// gets its broadcast address. The error is EEXIST if the link has the address already.
func (c Addrs) Add(l Link, p netip.Prefix) error { return c.add(l, p, 0) }

// AddGateway is like [Addrs.Add] for an address that must be usable at once: it skips the duplicate
// address detection of IPv6, during which the address would not answer.
func (c Addrs) AddGateway(l Link, p netip.Prefix) error { return c.add(l, p, unix.IFA_F_NODAD) }

// AddOptimistic is like [Addrs.Add] for an address that can be used during duplicate address
// detection: IPv6 with optimistic_dad (RFC 4429).
func (c Addrs) AddOptimistic(l Link, p netip.Prefix) error {
	return c.add(l, p, unix.IFA_F_OPTIMISTIC)
}

// add adds an address; flags6 are the flags (IFA_F_…) of an IPv6 address.
func (c Addrs) add(l Link, p netip.Prefix, flags6 uint32) error {
	if !p.IsValid() || p.Addr().Is4In6() {
		return fmt.Errorf("address %s: %w", p, unix.EINVAL)
	}
	about, attributes := address(l, p)
	if flags6 != 0 && p.Addr().Is6() {
		attributes = append(attributes, Uint32(unix.IFA_FLAGS, flags6))
	}
	if p.Addr().Is4() && p.Bits() < 31 {
		attributes = append(attributes, Bytes(unix.IFA_BROADCAST, broadcast(p)))
	}
	return c.conn.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, attributes...)
}

// Restore adds a stored address to its link. If the link has the address already, Restore succeeds.
func (c Addrs) Restore(a StoredAddr) error {
	err := c.conn.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a.message)
	return unless(err, unix.EEXIST)
}

// Delete removes an address and reports whether it existed.
func (c Addrs) Delete(l Link, p netip.Prefix) (existed bool, err error) {
	about, attributes := address(l, p)
	return deleted(c.conn.change(unix.RTM_DELADDR, 0, about, attributes...))
}

func address(l Link, p netip.Prefix) (unix.IfAddrmsg, []Attribute) {
	about := unix.IfAddrmsg{Family: familyOf(p.Addr()), Prefixlen: uint8(p.Bits()),
		Index: uint32(l.Index)}
	local := p.Addr().AsSlice()
	return about, []Attribute{Bytes(unix.IFA_LOCAL, local), Bytes(unix.IFA_ADDRESS, local)}
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// broadcast returns the last address of an IPv4 network.
func broadcast(p netip.Prefix) []byte {
	a := p.Addr().As4()
	return binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(a[:])|(1<<(32-p.Bits())-1))
}
