package rtnl

import (
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink/nlmsg"
	"github.com/tenon-cni/tenon/internal/netns"
)

// SameNamespace is what [Link.ParentNSID] and PeerNSID are where that is the namespace of the link itself.
const SameNamespace = -1

// Identify gives another namespace an identifier in this one, if it has none, by which [Conn.Namespaces] lists it.
func (c *Conn) Identify(ns *netns.NS) error {
	_, err := c.nsid(ns)
	return err
}

// Namespaces lists the identifiers that namespaces have in this one, and the one that it has itself.
func (c *Conn) Namespaces() (own int, all []int, err error) {
	id, err := c.nsid(c.ns)
	if err != nil {
		return 0, nil, err
	}
	err = c.list(unix.RTM_GETNSID, unix.RtGenmsg{}, nil, func() { all = nil }, func(m []byte) error {
		values, err := nlmsg.Read(m, &unix.RtGenmsg{})
		if id, there := attributes(values)[unix.NETNSA_NSID]; there {
			all = append(all, number(id))
		}
		return err
	})
	return int(id), all, err
}

// LinksIn lists the links of the namespace with that identifier (from Linux 4.20 on). Identifiers in them are those that
// namespaces have in this one, not in theirs.
func (c *Conn) LinksIn(nsid int) (links []Link, err error) {
	there := nlmsg.Uint32(unix.IFLA_TARGET_NETNSID, uint32(nsid))
	err = c.list(unix.RTM_GETLINK, header(0), []nlmsg.Attribute{there, brief()}, func() { links = nil }, func(m []byte) error {
		l, err := readLink(m)
		links = append(links, l)
		return err
	})
	return links, err
}
