package rtnl

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Addrs lists the addresses of a link with their prefix lengths, both families.
func (c *Conn) Addrs(l Link) (list []netip.Prefix, err error) {
	err = c.eachAddr(l, unix.AF_UNSPEC, func() { list = nil }, func(a netip.Prefix, _ uint32) { list = append(list, a) })
	return list, err
}

// eachAddr calls each with the addresses of a link and their flags (IFA_F_…), again from the start after reset.
func (c *Conn) eachAddr(l Link, family int, reset func(), each func(a netip.Prefix, flags uint32)) error {
	about := nl.NewIfAddrmsg(family)
	about.Index = uint32(l.Index)
	err := c.list(unix.RTM_GETADDR, about, nil, reset, func(m []byte) error {
		if len(m) < unix.SizeofIfAddrmsg {
			return unix.EBADMSG
		}
		about := nl.DeserializeIfAddrmsg(m)
		if int(about.Index) != l.Index {
			return nil
		}
		var local, remote netip.Addr
		flags := uint32(about.Flags)
		for kind, v := range nlmsg.Attributes(m[unix.SizeofIfAddrmsg:]) {
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
		each(netip.PrefixFrom(local, int(about.Prefixlen)), flags)
		return nil
	})
	if err != nil {
		return fmt.Errorf("addresses of link %q: %w", l.Name, err)
	}
	return nil
}

// AddAddr adds an address, without label and with scope global. An IPv4 prefix shorter than /31 gets its broadcast
// address. The error is EEXIST if the link has the address already.
func (c *Conn) AddAddr(l Link, p netip.Prefix) error { return c.addAddr(l, p, 0) }

// AddGateway is AddAddr for an address that others are to use as soon as it exists: IPv6 skips duplicate address
// detection, during which it would not answer.
func (c *Conn) AddGateway(l Link, p netip.Prefix) error {
	if p.Addr().Is6() {
		return c.addAddr(l, p, unix.IFA_F_NODAD)
	}
	return c.addAddr(l, p, 0)
}

// AddOptimistic is AddAddr for an address that can be used while duplicates of it are looked for: IPv6 with optimistic_dad
// (RFC 4429).
func (c *Conn) AddOptimistic(l Link, p netip.Prefix) error {
	if p.Addr().Is6() {
		return c.addAddr(l, p, unix.IFA_F_OPTIMISTIC)
	}
	return c.addAddr(l, p, 0)
}

func (c *Conn) addAddr(l Link, p netip.Prefix, flags uint32) error {
	if !p.IsValid() || p.Addr().Is4In6() {
		return fmt.Errorf("address %s: %w", p, unix.EINVAL)
	}
	about, attributes := address(l, p)
	if flags != 0 {
		attributes = append(attributes, nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(flags)))
	}
	if p.Addr().Is4() && p.Bits() < 31 {
		attributes = append(attributes, nl.NewRtAttr(unix.IFA_BROADCAST, broadcast(p)))
	}
	return c.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, attributes...)
}

// DelAddr removes an address and reports whether it was there.
func (c *Conn) DelAddr(l Link, p netip.Prefix) (existed bool, err error) {
	about, attributes := address(l, p)
	err = c.change(unix.RTM_DELADDR, 0, about, attributes...)
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

func address(l Link, p netip.Prefix) (*nl.IfAddrmsg, []*nl.RtAttr) {
	about := nl.NewIfAddrmsg(int(familyOf(p.Addr())))
	about.Index, about.Prefixlen = uint32(l.Index), uint8(p.Bits())
	local := p.Addr().AsSlice()
	return about, []*nl.RtAttr{nl.NewRtAttr(unix.IFA_LOCAL, local), nl.NewRtAttr(unix.IFA_ADDRESS, local)}
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
	err = c.eachAddr(l, unix.AF_INET6, func() { d = dad{} }, func(a netip.Prefix, flags uint32) {
		switch {
		case flags&unix.IFA_F_DADFAILED != 0:
			d.duplicate = a
		case flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0:
			d.tentative = true
		}
	})
	return d, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefix(n *net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits) // the library has IPv4 addresses of 16 bytes too
}
