package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Advertise announces to all nodes of a link that l's MAC address is the one of an IPv6 address,
// and overrides their caches (RFC 4861, section 7.2.6). The kernel does so itself, except for
// optimistic addresses, where neighbours must discover by themselves that a cached address is
// stale.
func (s Addrs) Advertise(l Link, addr netip.Addr) error {
	return s.space.tx.Do(fmt.Sprintf("advertise %s dev %s", addr, l.Name), func() error {
		return s.space.NS.Visit(func() error { return advertise(l, addr) })
	}, nil)
}

// advertise sends an unsolicited neighbor advertisement; the kernel fills in the checksum. It
// ignores a failure to send, because no node would receive the message: the link has no carrier or
// no multicast, or the address is still tentative.
func advertise(l Link, addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const hops = 255 // receivers ignore packets with fewer, which a router forwarded
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hops); err != nil {
		return err
	}
	const advertisement, override, targetLinkLayerAddress = 136, 0x20, 2
	message := append([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, addr.AsSlice()...)
	message = append(append(message, targetLinkLayerAddress, 1), l.MAC...)
	to := &unix.SockaddrInet6{Addr: netip.IPv6LinkLocalAllNodes().As16(), ZoneId: uint32(l.Index)}
	if unix.Bind(fd, &unix.SockaddrInet6{Addr: addr.As16(), ZoneId: uint32(l.Index)}) == nil {
		_ = unix.Sendto(fd, message, 0, to)
	}
	return nil
}
