package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// changes reports whether a message of rtnetlink changes objects. The types of an object are four
// numbers in the order new, delete, get, set (include/uapi/linux/rtnetlink.h).
func changes(kind uint16) bool {
	const get = unix.RTM_GETLINK - unix.RTM_BASE
	return (kind-unix.RTM_BASE)%4 != get
}

// messageName returns the name of a message type of rtnetlink(7), or its number if this package makes
// no such change.
func messageName(kind uint16) string {
	switch kind {
	case unix.RTM_NEWLINK:
		return "RTM_NEWLINK"
	case unix.RTM_DELLINK:
		return "RTM_DELLINK"
	case unix.RTM_SETLINK:
		return "RTM_SETLINK"
	case unix.RTM_NEWADDR:
		return "RTM_NEWADDR"
	case unix.RTM_DELADDR:
		return "RTM_DELADDR"
	case unix.RTM_NEWROUTE:
		return "RTM_NEWROUTE"
	case unix.RTM_DELROUTE:
		return "RTM_DELROUTE"
	case unix.RTM_NEWRULE:
		return "RTM_NEWRULE"
	case unix.RTM_DELRULE:
		return "RTM_DELRULE"
	case unix.RTM_NEWNEIGH:
		return "RTM_NEWNEIGH"
	case unix.RTM_DELNEIGH:
		return "RTM_DELNEIGH"
	case unix.RTM_NEWQDISC:
		return "RTM_NEWQDISC"
	case unix.RTM_DELQDISC:
		return "RTM_DELQDISC"
	case unix.RTM_NEWTFILTER:
		return "RTM_NEWTFILTER"
	case unix.RTM_DELTFILTER:
		return "RTM_DELTFILTER"
	case unix.RTM_NEWNSID:
		return "RTM_NEWNSID"
	case unix.RTM_NEWLINKPROP:
		return "RTM_NEWLINKPROP"
	case unix.RTM_DELLINKPROP:
		return "RTM_DELLINKPROP"
	}
	return fmt.Sprintf("RTM %d", kind)
}
