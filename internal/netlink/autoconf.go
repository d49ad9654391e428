package netlink

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Autoconf is the configuration of a link that the kernel derived from router advertisements (RFC
// 4862).
type Autoconf struct {
	Addrs  []netip.Prefix // usable addresses, without temporary ones (RFC 8981)
	Router netip.Addr     // of the default route; invalid if there is none
}

// Autoconf reads the configuration that the kernel derived from router advertisements.
func (c Addrs) Autoconf(l Link) (a Autoconf, err error) {
	if a.Addrs, _, err = c.advertised(l); err != nil {
		return a, err
	}
	all, err := c.conn.routes(TableMain)
	for _, m := range all {
		for _, r := range m.hops() {
			if m.Protocol == unix.RTPROT_RA && r.Dst.Bits() == 0 && r.Link == l.Index &&
				!a.Router.IsValid() {
				a.Router = r.Gateway()
			}
		}
	}
	return a, err
}

// WaitAutoconf waits until the kernel has derived an address from router advertisements, and can
// use all addresses it has derived. It adds the default route of an advertisement before the
// addresses.
func (c Addrs) WaitAutoconf(ctx context.Context, l Link) error {
	err := c.conn.await(ctx, l, unix.RTNLGRP_IPV6_IFADDR, func() (bool, error) {
		usable, complete, err := c.advertised(l)
		return len(usable) > 0 && complete, err
	})
	if err != nil {
		return fmt.Errorf("wait for router advertisements on link %q: %w", l.Name, err)
	}
	return nil
}

// advertised returns the addresses with a lifetime, which come from routers. complete is false
// while the kernel looks for duplicates of one of them.
func (c Addrs) advertised(l Link) (usable []netip.Prefix, complete bool, err error) {
	const others = unix.IFA_F_PERMANENT | unix.IFA_F_TEMPORARY | unix.IFA_F_DADFAILED |
		unix.IFA_F_DEPRECATED
	all, err := c.Stored(l)
	complete = true
	for _, a := range all {
		switch {
		case a.flags&others != 0 || a.Addr.Addr().IsLinkLocalUnicast():
		case a.unusable():
			complete = false
		default:
			usable = append(usable, a.Addr)
		}
	}
	return usable, complete, err
}
