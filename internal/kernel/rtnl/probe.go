package rtnl

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HasKind reports whether the kernel can make links of a kind; asking loads the module if there is one. Nothing is made:
// the request has a number of queues that the kernel refuses after it has found the kind.
func (c *Conn) HasKind(kind string) (bool, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.NumTxQueues = "probe", 1<<16
	a.ParentIndex = 1 // the library wants one for some kinds
	err := c.h.LinkAdd(&netlink.GenericLink{LinkAttrs: a, LinkType: kind})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return true, nil
	}
	return false, err
}
