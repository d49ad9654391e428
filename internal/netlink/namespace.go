package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// SameNamespace is the value of [Link.ParentNSID] and PeerNSID for the namespace of the link
// itself.
const SameNamespace = -1

// Identify gives another namespace an identifier in this one, unless it has one, so that
// [Conn.Namespaces] lists it.
func (c *Conn) Identify(ns *netns.NS) error {
	_, err := c.nsid(ns)
	return err
}

// Namespaces lists the identifiers that namespaces have in this one, and the identifier that it has
// itself.
func (c *Conn) Namespaces() (own int, all []int, err error) {
	id, err := c.nsid(c.ns)
	if err != nil {
		return 0, nil, err
	}
	all, err = list(c, unix.RTM_GETNSID, unix.RtGenmsg{}, nil,
		func(all []int, m []byte) ([]int, error) {
			values, err := ReadBody(m, &unix.RtGenmsg{})
			if id := Find(values, unix.NETNSA_NSID); id != nil {
				all = append(all, number(id))
			}
			return all, err
		})
	return int(id), all, err
}

// nsid returns the identifier of a namespace in this one, and assigns a permanent one if there is
// none.
func (c *Conn) nsid(ns *netns.NS) (id int32, err error) {
	if id, err = c.identifier(ns); err != nil || id >= 0 {
		return id, err
	}
	var about unix.RtGenmsg
	fd := Uint32(unix.NETNSA_FD, uint32(ns.Fd()))
	unassigned := int32(unix.NETNSA_NSID_NOT_ASSIGNED) // the kernel chooses
	if err := c.change(unix.RTM_NEWNSID, 0, about, fd,
		Uint32(unix.NETNSA_NSID, uint32(unassigned))); err != nil {
		return 0, fmt.Errorf("identifier of namespace %s: %w", ns, err)
	}
	if id, err = c.identifier(ns); err != nil || id >= 0 {
		return id, err
	}
	return 0, fmt.Errorf("identifier of namespace %s: %w", ns, unix.ENOENT)
}

// Identifier returns the identifier that another namespace has in this one, ok is false if it has
// none. It assigns none.
func (c *Conn) Identifier(ns *netns.NS) (id int, ok bool, err error) {
	n, err := c.identifier(ns)
	if err != nil {
		return 0, false, fmt.Errorf("identifier of namespace %s: %w", ns, err)
	}
	return int(n), n >= 0, nil
}

// identifier returns the identifier of a namespace in this one, NETNSA_NSID_NOT_ASSIGNED (-1) if it
// has none.
func (c *Conn) identifier(ns *netns.NS) (id int32, err error) {
	err = c.ask(unix.RTM_GETNSID, 0, unix.RtGenmsg{},
		[]Attribute{Uint32(unix.NETNSA_FD, uint32(ns.Fd()))}, func(m []byte) error {
			values, err := ReadBody(m, &unix.RtGenmsg{})
			id = int32(number(Find(values, unix.NETNSA_NSID)))
			return err
		})
	return id, err
}

// Lives reports whether a namespace, by its identifier in this one, still has a user. The kernel
// tears down a namespace without users in the background; until then its links look unchanged.
func (c *Conn) Lives(nsid int) (bool, error) {
	err := c.ask(unix.RTM_GETNSID, 0, unix.RtGenmsg{},
		[]Attribute{Uint32(unix.NETNSA_NSID, uint32(nsid))}, func([]byte) error {
			return nil
		})
	if err := unless(err, unix.ENOENT, unix.EINVAL); err != nil {
		return false, fmt.Errorf("namespace %d of a link: %w", nsid, err)
	}
	return err == nil, nil
}
