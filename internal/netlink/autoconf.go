package netlink

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Autoconf is what the kernel has made of router advertisements for a link (RFC 4862).
type Autoconf struct {
	Addrs  []netip.Prefix // that can be used; not those for privacy (RFC 8981), which come and go
	Router netip.Addr     // of the default route; not valid: no router is for that

	tentative bool // duplicates of an address are being looked for
}

// Autoconf reads what the kernel has made of router advertisements for a link.
func (c Addrs) Autoconf(l Link) (Autoconf, error) {
	a, err := c.conn.advertised(l)
	if err != nil {
		return a, err
	}
	all, err := c.conn.routes(TableMain)
	for _, m := range all {
		for _, r := range m.hops() {
			if m.Protocol == unix.RTPROT_RA && r.Dst.Bits() == 0 && r.Link == l.Index && !a.Router.IsValid() {
				a.Router = r.Gateway()
			}
		}
	}
	return a, err
}

// WaitAutoconf waits until the kernel has made an address of router advertisements, and all that it
// has made can be used. The default route of an advertisement is made before its addresses.
func (c Addrs) WaitAutoconf(ctx context.Context, l Link) error {
	err := c.conn.await(ctx, l, unix.RTNLGRP_IPV6_IFADDR, func() (bool, error) {
		a, err := c.conn.advertised(l)
		return len(a.Addrs) > 0 && !a.tentative, err
	})
	if err != nil {
		return fmt.Errorf("addresses of link %q by router advertisements: %w", l.Name, err)
	}
	return nil
}

// advertised reads the addresses with a lifetime: routers advertise one.
func (c *Conn) advertised(l Link) (a Autoconf, err error) {
	const others = unix.IFA_F_PERMANENT | unix.IFA_F_TEMPORARY | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	err = c.eachAddr(l, unix.AF_INET6, func() { a = Autoconf{} }, func(p netip.Prefix, flags uint32, _ []byte) {
		switch {
		case flags&others != 0 || p.Addr().IsLinkLocalUnicast():
		case flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0:
			a.tentative = true
		default:
			a.Addrs = append(a.Addrs, p)
		}
	})
	return a, err
}
