package netlink

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// StoredAddr is an IPv6 address of a link with all its attributes: flags, lifetimes, peer. It can
// be restored unchanged.
type StoredAddr struct {
	Addr       netip.Prefix
	Tentative  bool // duplicates of it are being looked for, or one was found
	Optimistic bool // it can be used meanwhile (RFC 4429)

	message []byte // of the kernel; as a request: flags that are states it does not look at
}

// Stored lists the IPv6 addresses of a link. IPv4 addresses survive the changes that delete
// IPv6 addresses.
func (c Addrs) Stored(l Link) (list []StoredAddr, err error) {
	err = c.conn.eachAddr(l, unix.AF_INET6, func() { list = nil }, func(a netip.Prefix, flags uint32, message []byte) {
		list = append(list, StoredAddr{
			Addr:      a,
			Tentative: flags&unix.IFA_F_TENTATIVE != 0, Optimistic: flags&unix.IFA_F_OPTIMISTIC != 0,
			message: slices.Clone(message),
		})
	})
	return list, err
}

// Restore adds a stored address to the link that it was on. That it is there is no error.
func (c Addrs) Restore(a StoredAddr) error {
	err := c.conn.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a.message)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
