package rtnl

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addrs lists the addresses of a link with their prefix lengths, both families.
func (c *Conn) Addrs(l Link) ([]netip.Prefix, error) {
	as, err := c.h.AddrList(ref(l), netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of link %q: %w", l.Name, err)
	}
	ps := make([]netip.Prefix, len(as))
	for i, a := range as {
		ps[i] = prefix(a.IPNet)
	}
	return ps, nil
}

// AddAddr adds an address, without label and with scope global. An IPv4 prefix shorter than /31 gets its broadcast
// address. The error is EEXIST if the link has the address already.
func (c *Conn) AddAddr(l Link, p netip.Prefix) error {
	return c.h.AddrAdd(ref(l), &netlink.Addr{IPNet: ipNet(p)})
}

// AddGateway is AddAddr for an address that others are to use as soon as it exists: IPv6 skips duplicate address
// detection, during which it would not answer.
func (c *Conn) AddGateway(l Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return c.h.AddrAdd(ref(l), a)
}

// DelAddr removes an address and reports whether it was there.
func (c *Conn) DelAddr(l Link, p netip.Prefix) (existed bool, err error) {
	err = c.h.AddrDel(ref(l), &netlink.Addr{IPNet: ipNet(p)})
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

// dad sums up duplicate address detection on the IPv6 addresses of a link (RFC 4862 section 5.4).
type dad struct {
	tentative bool         // one is not finished
	duplicate netip.Prefix // valid if it has found one
}

func (c *Conn) dad(l Link) (dad, error) {
	as, err := c.h.AddrList(ref(l), netlink.FAMILY_V6)
	if err != nil {
		return dad{}, fmt.Errorf("addresses of link %q: %w", l.Name, err)
	}
	var d dad
	for _, a := range as {
		switch {
		case a.Flags&unix.IFA_F_DADFAILED != 0:
			d.duplicate = prefix(a.IPNet)
		case a.Flags&unix.IFA_F_TENTATIVE != 0:
			d.tentative = true
		}
	}
	return d, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefix(n *net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits) // the library has IPv4 addresses of 16 bytes too
}
