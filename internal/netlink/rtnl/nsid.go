package rtnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink/nlmsg"
)

// Attributes of struct rtgenmsg (include/uapi/linux/net_namespace.h).
const netnsaNSID = 1

// Lives reports whether a namespace, by its identifier in this one, still has a user. The kernel tears one
// without users down in the background; until then its links look as before.
func (c *Conn) Lives(nsid int) (bool, error) {
	about := struct{ Family, _, _, _ byte }{Family: unix.AF_UNSPEC}
	err := c.ask(unix.RTM_GETNSID, 0, about, []nlmsg.Attribute{nlmsg.Uint32(netnsaNSID, uint32(nsid))}, func([]byte) error { return nil })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("namespace %d of a link: %w", nsid, err)
	}
	return true, nil
}
