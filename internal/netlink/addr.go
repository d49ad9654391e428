package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Of lists the addresses of a link with their prefix lengths, both families.
func (c Addrs) Of(l Link) (list []netip.Prefix, err error) {
	err = c.conn.eachAddr(l, unix.AF_UNSPEC, func() { list = nil }, func(a netip.Prefix, _ uint32, _ []byte) { list = append(list, a) })
	return list, err
}

// Kept lists the permanent addresses of a link. It leaves out addresses with a lifetime, which
// their source assigns again, and link-local addresses of IPv6, which the kernel assigns. Within
// one network, the first address is the primary one, and the others depend on it.
func (c Addrs) Kept(l Link) (list []netip.Prefix, err error) {
	err = c.conn.eachAddr(l, unix.AF_UNSPEC, func() { list = nil }, func(a netip.Prefix, flags uint32, _ []byte) {
		if flags&unix.IFA_F_PERMANENT != 0 && (a.Addr().Is4() || !a.Addr().IsLinkLocalUnicast()) {
			list = append(list, a)
		}
	})
	return list, err
}

// eachAddr calls each with the addresses of a link, their flags (IFA_F_…) and the message about
// them, which the next one overwrites; again from the start after reset.
func (c *Conn) eachAddr(l Link, family int, reset func(), each func(a netip.Prefix, flags uint32, message []byte)) error {
	of := unix.IfAddrmsg{Family: uint8(family), Index: uint32(l.Index)}
	err := c.list(unix.RTM_GETADDR, of, nil, reset, func(m []byte) error {
		var about unix.IfAddrmsg
		attributes, err := ReadBody(m, &about)
		if err != nil || int(about.Index) != l.Index {
			return err
		}
		var local, remote netip.Addr
		flags := uint32(about.Flags)
		for kind, v := range Attributes(attributes) {
			switch kind {
			case unix.IFA_LOCAL: // only IPv4, and IPv6 with a peer
				local, _ = netip.AddrFromSlice(v)
			case unix.IFA_ADDRESS:
				remote, _ = netip.AddrFromSlice(v)
			case unix.IFA_FLAGS:
				flags = uint32(number(v))
			}
		}
		if !local.IsValid() {
			local = remote
		}
		each(netip.PrefixFrom(local, int(about.Prefixlen)), flags, m)
		return nil
	})
	if err != nil {
		return fmt.Errorf("addresses of link %q: %w", l.Name, err)
	}
	return nil
}

// Add adds an address, without label and with scope global. An IPv4 prefix shorter than /31
// gets its broadcast address. The error is EEXIST if the link has the address already.
func (c Addrs) Add(l Link, p netip.Prefix) error { return c.conn.addAddr(l, p, 0) }

// AddGateway is AddAddr for an address that others are to use as soon as it exists: IPv6 skips
// duplicate address detection, during which it would not answer.
func (c Addrs) AddGateway(l Link, p netip.Prefix) error {
	if p.Addr().Is6() {
		return c.conn.addAddr(l, p, unix.IFA_F_NODAD)
	}
	return c.conn.addAddr(l, p, 0)
}

// AddOptimistic is AddAddr for an address that can be used while duplicates of it are looked for:
// IPv6 with optimistic_dad (RFC 4429).
func (c Addrs) AddOptimistic(l Link, p netip.Prefix) error {
	if p.Addr().Is6() {
		return c.conn.addAddr(l, p, unix.IFA_F_OPTIMISTIC)
	}
	return c.conn.addAddr(l, p, 0)
}

func (c *Conn) addAddr(l Link, p netip.Prefix, flags uint32) error {
	if !p.IsValid() || p.Addr().Is4In6() {
		return fmt.Errorf("address %s: %w", p, unix.EINVAL)
	}
	about, attributes := address(l, p)
	if flags != 0 {
		attributes = append(attributes, Uint32(unix.IFA_FLAGS, flags))
	}
	if p.Addr().Is4() && p.Bits() < 31 {
		attributes = append(attributes, Bytes(unix.IFA_BROADCAST, broadcast(p)))
	}
	return c.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, attributes...)
}

// Delete removes an address and reports whether it was there.
func (c Addrs) Delete(l Link, p netip.Prefix) (existed bool, err error) {
	about, attributes := address(l, p)
	err = c.conn.change(unix.RTM_DELADDR, 0, about, attributes...)
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

func address(l Link, p netip.Prefix) (unix.IfAddrmsg, []Attribute) {
	about := unix.IfAddrmsg{Family: familyOf(p.Addr()), Prefixlen: uint8(p.Bits()), Index: uint32(l.Index)}
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

// dad sums up duplicate address detection on the IPv6 addresses of a link (RFC 4862 section 5.4).
type dad struct {
	tentative bool         // one is not finished, and the address cannot be used
	duplicate netip.Prefix // valid if it has found one
}

func (c *Conn) dad(l Link) (d dad, err error) {
	err = c.eachAddr(l, unix.AF_INET6, func() { d = dad{} }, func(a netip.Prefix, flags uint32, _ []byte) {
		switch {
		case flags&unix.IFA_F_DADFAILED != 0:
			d.duplicate = a
		case flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0:
			d.tentative = true
		}
	})
	return d, err
}

// Duplicates lists the addresses of a link that duplicate address detection has found in use
// elsewhere.
func (c Addrs) Duplicates(l Link) (list []netip.Prefix, err error) {
	err = c.conn.eachAddr(l, unix.AF_INET6, func() { list = nil }, func(a netip.Prefix, flags uint32, _ []byte) {
		if flags&unix.IFA_F_DADFAILED != 0 {
			list = append(list, a)
		}
	})
	return list, err
}
