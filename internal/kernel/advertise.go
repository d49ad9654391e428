package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Advertise tells all nodes of a link that an IPv6 address is that of l's hardware address, whatever they have known (RFC
// 4861, section 7.2.6). The kernel does so itself, but for addresses whose use is optimistic: it leaves it to the neighbours to
// find out that an older answer has become wrong.
func (s Addrs) Advertise(l Link, addr netip.Addr) error {
	return s.space.tx.Do(fmt.Sprintf("advertise %s dev %s", addr, l.Name), func() error {
		return s.space.NS.Visit(func() error { return advertise(l, addr) })
	}, nil)
}

// advertise sends an unsolicited neighbor advertisement, whose checksum the kernel fills in. Where it cannot be sent nobody would
// hear it: there is no carrier or no multicast, or the address is still tentative.
func advertise(l Link, addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const hops = 255 // what came through a router has fewer and is not believed
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
