package netlink

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// creation is a request to create a link.
type creation struct {
	name, kind string
	mac        net.HardwareAddr // nil lets the kernel choose
	mtu        int              // bytes; 0 is the kernel's default
	attributes []Attribute      // further attributes (IFLA_…)
	data       []Attribute      // attributes that the kind defines
}

// create creates a link. The error is EEXIST if the name is in use.
func (c *Conn) create(l creation) error {
	var about unix.IfInfomsg
	info := []Attribute{String(unix.IFLA_INFO_KIND, l.kind)}
	if l.data != nil {
		info = append(info, Nest(unix.IFLA_INFO_DATA, l.data...))
	}
	attributes := append(l.common(), l.attributes...)
	attributes = append(attributes, Nest(unix.IFLA_LINKINFO, info...))
	return c.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, attributes...)
}

// made is like create for callers that need the index of the link. It deletes the link again if it
// cannot look up the index.
func (c *Conn) made(l creation) (index int, err error) {
	if err := c.create(l); err != nil {
		return 0, err
	}
	link, err := c.Links.ByName(l.name)
	if err != nil {
		_, undone := deleted(c.change(unix.RTM_DELLINK, 0, header(0),
			String(unix.IFLA_IFNAME, l.name)))
		return 0, errors.Join(err, undone)
	}
	return link.Index, nil
}

// common returns the attributes that every kind has.
func (l creation) common() []Attribute {
	list := []Attribute{String(unix.IFLA_IFNAME, l.name)}
	if l.mac != nil {
		list = append(list, Bytes(unix.IFLA_ADDRESS, l.mac))
	}
	if l.mtu > 0 {
		list = append(list, Uint32(unix.IFLA_MTU, uint32(l.mtu)))
	}
	return list
}
