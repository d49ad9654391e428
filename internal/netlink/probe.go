package netlink

import (
	"errors"

	"golang.org/x/sys/unix"
)

// HasKind reports whether the kernel can create links of a kind; the request loads the module if
// there is one. It creates nothing: it has a number of queues that the kernel refuses after it has
// found the kind.
func (c Links) HasKind(kind string) (bool, error) {
	err := c.conn.create(creation{name: "probe", kind: kind, attributes: tooManyQueues()})
	return supported(err, unix.EOPNOTSUPP)
}

// supported interprets the answer to an invalid request: the kernel refuses it with EINVAL if it
// has a feature, and with another error if it lacks the feature.
func supported(answer, lacking error) (bool, error) {
	if errors.Is(answer, lacking) {
		return false, nil
	}
	if errors.Is(answer, unix.EINVAL) {
		return true, nil
	}
	return false, answer
}

// tooManyQueues returns a number of queues that the kernel refuses.
func tooManyQueues() []Attribute {
	return []Attribute{Uint32(unix.IFLA_NUM_TX_QUEUES, 1<<16)}
}

// HasVLANFiltering reports whether bridges can forward by VLAN. It creates nothing: the request has
// the name of the loopback interface, which is in use, and an invalid default VLAN. Only a kernel
// with filtering checks the VLAN, and refuses it before it checks the name.
func (c *Conn) HasVLANFiltering() (bool, error) {
	if has, err := c.Links.HasKind("bridge"); !has || err != nil {
		return false, err
	}
	invalid := Uint16(unix.IFLA_BR_VLAN_DEFAULT_PVID, 4095)
	return supported(c.create(creation{
		name: "lo", kind: "bridge", data: []Attribute{invalid},
		attributes: tooManyQueues(), // in case lo does not exist
	}), unix.EEXIST)
}

// HasShaping reports whether the kernel has the qdiscs that SetTBF and AddHooks create; the
// requests load their modules. They create nothing: they name block 0, which the kernel refuses
// after it has found the kind.
func (c *Conn) HasShaping() (bool, error) {
	const loopback = 1 // its index in every namespace
	has := func(kind string, parent uint32) (bool, error) {
		about := tcMsg{Ifindex: loopback, Parent: parent}
		return supported(c.change(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, about,
			kindOf(kind), Uint32(unix.TCA_INGRESS_BLOCK, 0)), unix.ENOENT)
	}
	if has, err := has(kindTBF, parentRoot); !has {
		return false, err
	}
	return has(KindIngress, parentIngress)
}
