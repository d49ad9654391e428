package rtnl

import (
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Qdiscs and filters are requests of our own, because those of the library know all kinds of them there are: 0.3 MB in the
// file that every plugin is.

// tcObject is a qdisc or a filter as the kernel describes it.
type tcObject struct {
	nl.TcMsg
	attributes map[uint16][]byte // TCA_…
}

func (o tcObject) kind() string { return nlmsg.Text(o.attributes[nl.TCA_KIND]) }

// tcList asks for a list: typ is unix.RTM_GET….
func (c *Conn) tcList(typ uint16, about nl.TcMsg) (list []tcObject, err error) {
	err = c.list(typ, &about, nil, func() { list = nil }, func(m []byte) error {
		if len(m) < about.Len() {
			return unix.EBADMSG
		}
		list = append(list, tcObject{*nl.DeserializeTcMsg(slices.Clone(m)), attributes(slices.Clone(m[about.Len():]))})
		return nil
	})
	return list, err
}

// tcChange makes or deletes something: typ is unix.RTM_NEW… or RTM_DEL….
func (c *Conn) tcChange(typ uint16, flags int, about nl.TcMsg, attributes ...*nl.RtAttr) error {
	return c.change(typ, flags, &about, attributes...)
}

// attributes returns values by type.
func attributes(b []byte) map[uint16][]byte {
	values := map[uint16][]byte{}
	for kind, v := range nlmsg.Attributes(b) {
		values[kind] = v
	}
	return values
}

func kindOf(kind string) *nl.RtAttr { return nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)) }
