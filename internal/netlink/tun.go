package netlink

import (
	"golang.org/x/sys/unix"
)

// Tun holds the properties of tun and tap devices.
type Tun struct {
	Tap        bool    // it carries Ethernet frames, not IP packets
	MultiQueue bool    // several programs, or threads, can each drive a queue
	VNetHdr    bool    // frames have a virtio_net_hdr before them
	PI         bool    // frames have packet information before them
	Persistent bool    // it outlives the program that opens it
	Owner      *uint32 // the user who may open it without CAP_NET_ADMIN, or nil
	Group      *uint32 // the group with members who may open it, or nil
}

const typeTap = 2 // TUN_TAP_DEV

func readTun(data []byte) *Tun {
	t := &Tun{}
	for kind, v := range Attributes(data) {
		n := uint32(number(v))
		switch kind {
		case unix.IFLA_TUN_TYPE:
			t.Tap = n == typeTap
		case unix.IFLA_TUN_MULTI_QUEUE:
			t.MultiQueue = n != 0
		case unix.IFLA_TUN_VNET_HDR:
			t.VNetHdr = n != 0
		case unix.IFLA_TUN_PI:
			t.PI = n != 0
		case unix.IFLA_TUN_PERSIST:
			t.Persistent = n != 0
		case unix.IFLA_TUN_OWNER:
			t.Owner = &n
		case unix.IFLA_TUN_GROUP:
			t.Group = &n
		}
	}
	return t
}
