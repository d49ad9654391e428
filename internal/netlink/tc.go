package netlink

import (
	"slices"

	"golang.org/x/sys/unix"
)

// tcMsg is struct tcmsg (linux/rtnetlink.h).
type tcMsg struct {
	Family  uint8
	_       [3]byte
	Ifindex int32
	Handle  uint32
	Parent  uint32
	Info    uint32 // of a filter: priority and protocol
}

// Parents without a handle (TC_H_… of linux/pkt_sched.h).
const (
	parentRoot    = 0xffffffff
	parentIngress = 0xfffffff1
)

// handle is a number of two halves, which tc(8) shows as MAJOR:MINOR.
func handle(major, minor uint16) uint32 { return uint32(major)<<16 | uint32(minor) }

// tcObject is a qdisc or a filter as the kernel describes it.
type tcObject struct {
	tcMsg
	attributes map[uint16][]byte // TCA_…
}

func (o tcObject) kind() string { return Text(o.attributes[unix.TCA_KIND]) }

// tcList requests a list: typ is unix.RTM_GET….
func (c *Conn) tcList(typ uint16, about tcMsg) ([]tcObject, error) {
	return list(c, typ, about, nil, func(list []tcObject, m []byte) ([]tcObject, error) {
		var o tcObject
		values, err := ReadBody(slices.Clone(m), &o.tcMsg)
		o.attributes = attributes(values)
		return append(list, o), err
	})
}

// attributes returns the values of attributes by type.
func attributes(b []byte) map[uint16][]byte {
	values := map[uint16][]byte{}
	for kind, v := range Attributes(b) {
		values[kind] = v
	}
	return values
}

func kindOf(kind string) Attribute { return String(unix.TCA_KIND, kind) }
