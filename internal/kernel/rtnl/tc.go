package rtnl

import (
	"bytes"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Qdiscs and filters are requests of our own, because those of the library know all kinds of them there are: 0.3 MB in the
// file that every plugin is.

// tcObject is a qdisc or a filter as the kernel describes it.
type tcObject struct {
	nl.TcMsg
	attributes map[uint16][]byte // TCA_…
}

func (o tcObject) kind() string { return text(o.attributes[nl.TCA_KIND]) }

func text(zeroTerminated []byte) string { return string(bytes.TrimRight(zeroTerminated, "\x00")) }

// tcList asks for a list: typ is unix.RTM_GET….
func (c *Conn) tcList(typ uint16, about nl.TcMsg) ([]tcObject, error) {
	messages, err := c.request(typ, unix.NLM_F_DUMP, &about, nil)
	if err != nil {
		return nil, err
	}
	list := make([]tcObject, len(messages))
	for i, m := range messages {
		header := nl.DeserializeTcMsg(m)
		a, err := attributes(m[header.Len():])
		if err != nil {
			return nil, err
		}
		list[i] = tcObject{*header, a}
	}
	return list, nil
}

// tcChange makes or deletes something: typ is unix.RTM_NEW… or RTM_DEL….
func (c *Conn) tcChange(typ uint16, flags int, about nl.TcMsg, attributes ...*nl.RtAttr) error {
	_, err := c.request(typ, flags|unix.NLM_F_ACK, &about, attributes)
	return err
}

// attributes returns values by type.
func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	values := map[uint16][]byte{}
	for _, a := range list {
		values[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return values, nil
}

func kindOf(kind string) *nl.RtAttr { return nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)) }
