package netlink

import (
	"errors"

	"golang.org/x/sys/unix"
)

// HasKind reports whether the kernel can make links of a kind; asking loads the module if there is
// one. Nothing is made: the request has a number of queues that the kernel refuses after it has
// found the kind.
func (c Links) HasKind(kind string) (bool, error) {
	err := c.conn.create(creation{name: "probe", kind: kind, attributes: tooManyQueues()})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return true, nil
	}
	return false, err
}

// tooManyQueues is a number that the kernel refuses.
func tooManyQueues() []Attribute {
	return []Attribute{Uint32(unix.IFLA_NUM_TX_QUEUES, 1<<16)}
}

// HasVLANFiltering reports whether bridges can forward by VLAN. Nothing is made: the request has
// the name of the loopback, which is taken, and a default VLAN that only a kernel with filtering
// looks at, and refuses, before it sees that.
func (c *Conn) HasVLANFiltering() (bool, error) {
	if has, err := c.Links.HasKind("bridge"); !has || err != nil {
		return false, err
	}
	invalid := Uint16(unix.IFLA_BR_VLAN_DEFAULT_PVID, 4095)
	err := c.create(creation{
		name: "lo", kind: "bridge", data: []Attribute{invalid},
		attributes: tooManyQueues(), // should there be no lo
	})
	switch {
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return true, nil
	}
	return false, err
}

// HasShaping reports whether the kernel has the qdiscs that SetTBF and AddHooks make; asking loads
// their modules. Nothing is made: the requests name block 0, which the kernel refuses after it has
// found the kind.
func (c *Conn) HasShaping() (bool, error) {
	const loopback = 1 // its index in every namespace
	for _, kind := range []string{"tbf", KindIngress} {
		parent := uint32(parentRoot)
		if kind == KindIngress {
			parent = parentIngress
		}
		err := c.change(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, tcMsg{Ifindex: loopback, Parent: parent},
			kindOf(kind), Uint32(unix.TCA_INGRESS_BLOCK, 0))
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if !errors.Is(err, unix.EINVAL) {
			return false, err
		}
	}
	return true, nil
}
