package netlink

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Loss is the deletion of a link, of an address or route that is not link-local or of a policy
// rule, the new state of a link, or the end of forwarding.
type Loss struct {
	NSID    int // namespace, see [Stream.Next]
	Kind    LossKind
	Deleted bool // false: a link has changed
	Link    int  // index of the link, 0 for rules and forwarding
	PID     int  // of the process that asked for it, 0 if it is not known; unchecked

	// Of links: the name, and the state if it was not deleted.
	Name   string
	Up     bool
	Master int
	Left   bool // the link has left its bridge

	Object string // for people, without the name of the link: "address 10.1.2.3/24", "route default"
}

// LossKind is the kind of the object of a [Loss].
type LossKind int

// The kinds of objects.
const (
	LostLink LossKind = iota
	LostAddress
	LostRoute
	LostRule       // of policy routing
	LostForwarding // of all links, in one family
)

// Losses receives losses in a namespace, and in all namespaces that have an identifier in it.
type Losses struct {
	*Stream
}

// OpenLosses opens a monitor in a namespace, which need not stay open. buffer is the size of its
// receive buffer, see [OpenStream].
func OpenLosses(ns *netns.NS, buffer int) (Losses, error) {
	s, err := OpenStream(ns, StreamOptions{Protocol: unix.NETLINK_ROUTE, Everywhere: true,
		Buffer: buffer, Groups: []int{unix.RTNLGRP_LINK,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF}})
	return Losses{s}, err
}

// Next returns the losses of the next datagram, see [Stream.Next]. more is false if wait is false
// and there was none. The error is [ErrOverrun] if messages were lost.
func (l Losses) Next(wait bool) (list []Loss, more bool, err error) {
	data, nsid, err := l.Stream.Next(wait)
	if err != nil || data == nil {
		return nil, false, err
	}
	list, err = readLosses(data)
	for i := range list {
		list[i].NSID = nsid
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOverrun, err)
	}
	return list, true, err
}

func readLosses(data []byte) (list []Loss, err error) {
	failed := Messages(data, func(m Message) {
		loss, ok, wrong := readLoss(m)
		if wrong != nil {
			err = wrong
		} else if ok {
			list = append(list, loss)
		}
	})
	if failed != nil {
		err = failed
	}
	return list, err
}

// readLoss decodes a message; ok is false if it is about no loss.
func readLoss(m Message) (l Loss, ok bool, err error) {
	l.PID = int(m.Port)
	switch m.Kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return l, true, l.readLink(m)
	case unix.RTM_DELADDR:
		a, index, err := readAddr(m.Payload)
		l.Kind, l.Deleted, l.Link, l.Object = LostAddress, true, index, "address "+a.Addr.String()
		return l, !a.Addr.Addr().IsLinkLocalUnicast(), err
	case unix.RTM_DELROUTE:
		return l.readRoute(m)
	case unix.RTM_DELRULE:
		var about RuleMsg
		attributes, err := ReadBody(m.Payload, &about)
		l.Kind, l.Deleted = LostRule, true
		l.Object = "rule " + newPolicyRule(about, attributes).String()
		return l, true, err
	case unix.RTM_NEWNETCONF:
		return l.readForwarding(m)
	}
	return l, false, nil
}

func (l *Loss) readLink(m Message) error {
	var about unix.IfInfomsg
	attributes, err := ReadBody(m.Payload, &about)
	if err != nil {
		return err
	}
	l.Link, l.Up = int(about.Index), about.Flags&unix.IFF_UP != 0
	for kind, v := range Attributes(attributes) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = Text(v)
		case unix.IFLA_MASTER:
			l.Master = number(v)
		}
	}
	// Messages of family bridge are about ports: a deletion means that the link left the bridge.
	bridge := about.Family == unix.AF_BRIDGE
	l.Left = bridge && m.Kind == unix.RTM_DELLINK
	l.Deleted = !bridge && m.Kind == unix.RTM_DELLINK
	l.Object = "link " + l.Name
	return nil
}

// readRoute decodes the deletion of a unicast route through one link, except in the table local.
func (l Loss) readRoute(m Message) (Loss, bool, error) {
	r, err := readRoute(m.Payload)
	if err != nil || r.Type != unix.RTN_UNICAST || r.Flags&unix.RTM_F_CLONED != 0 ||
		r.table() == unix.RT_TABLE_LOCAL || r.Protocol == unix.RTPROT_RA {
		return l, false, err
	}
	dst := "default"
	if a, ok := netip.AddrFromSlice(r.attributes[unix.RTA_DST]); ok && r.Dst_len > 0 {
		if a.IsLinkLocalUnicast() {
			return l, false, nil
		}
		dst = netip.PrefixFrom(a, int(r.Dst_len)).String()
	}
	l.Kind, l.Deleted, l.Object = LostRoute, true, "route "+dst
	l.Link = number(r.attributes[unix.RTA_OIF])
	return l, l.Link != 0, nil
}

// readForwarding decodes a change of the forwarding of all links (linux/netconf.h).
func (l Loss) readForwarding(m Message) (Loss, bool, error) {
	const (
		ifindex, forwarding = 1, 2 // NETCONFA_IFINDEX, NETCONFA_FORWARDING
		all                 = -1   // NETCONFA_IFINDEX_ALL
	)
	var family uint8 // struct netconfmsg
	attributes, err := ReadBody(m.Payload, &family)
	if err != nil {
		return l, false, err
	}
	value := Find(attributes, forwarding)
	if int32(number(Find(attributes, ifindex))) != all || value == nil || number(value) != 0 {
		return l, false, nil
	}
	l.Kind, l.Deleted, l.Object = LostForwarding, true, "forwarding of IPv4"
	if family == unix.AF_INET6 {
		l.Object = "forwarding of IPv6"
	}
	return l, true, nil
}
