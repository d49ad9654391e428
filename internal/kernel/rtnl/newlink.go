package rtnl

import (
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// creation is a request for a link. It is one of our own, because that of the library knows all kinds there are: 0.14 MB in
// the file that every plugin is.
type creation struct {
	name, kind string
	mac        net.HardwareAddr // nil lets the kernel choose
	mtu        int              // bytes; 0 is the kernel's default
	up         bool
	attributes []*nl.RtAttr // IFLA_…, further ones
	data       []*nl.RtAttr // what the kind defines
}

// create makes a link. The error is EEXIST if the name is taken.
func (c *Conn) create(l creation) error {
	about := nl.NewIfInfomsg(unix.AF_UNSPEC)
	if l.up {
		about.Flags, about.Change = unix.IFF_UP, unix.IFF_UP
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(l.kind))
	if l.data != nil {
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		for _, a := range l.data {
			data.AddChild(a)
		}
	}
	attributes := append(l.common(), l.attributes...)
	return c.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, append(attributes, info)...)
}

// made is create for who has to know the index.
func (c *Conn) made(l creation) (index int, err error) {
	if err := c.create(l); err != nil {
		return 0, err
	}
	link, err := c.Link(l.name)
	return link.Index, err
}

// common are the attributes of every kind.
func (l creation) common() []*nl.RtAttr {
	list := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(l.name))}
	if l.mac != nil {
		list = append(list, nl.NewRtAttr(unix.IFLA_ADDRESS, l.mac))
	}
	if l.mtu > 0 {
		list = append(list, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(l.mtu))))
	}
	return list
}
