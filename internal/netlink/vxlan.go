package netlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// KindVXLAN is the kind of VXLAN devices.
const KindVXLAN = "vxlan"

// VXLAN describes the tunnel of a VXLAN device (RFC 7348, ip-link(8)). The device has no remote
// address: it sends only to MAC addresses with an entry in its forwarding database.
type VXLAN struct {
	VNI      int        // the network identifier, 1 to 16777215
	Port     uint16     // UDP, of the destination
	Local    netip.Addr // the source of its packets; its family is the family of the tunnel
	Learning bool       // learn the senders of MAC addresses
}

// data returns the attributes of the kind.
func (v VXLAN) data() []Attribute {
	local := uint16(unix.IFLA_VXLAN_LOCAL6)
	if v.Local.Is4() {
		local = unix.IFLA_VXLAN_LOCAL
	}
	return []Attribute{
		Uint32(unix.IFLA_VXLAN_ID, uint32(v.VNI)),
		Bytes(unix.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, v.Port)),
		Bytes(local, v.Local.AsSlice()),
		flag(unix.IFLA_VXLAN_LEARNING, v.Learning),
	}
}

func readVXLAN(data []byte) *VXLAN {
	v := new(VXLAN)
	for kind, value := range Attributes(data) {
		switch kind {
		case unix.IFLA_VXLAN_ID:
			v.VNI = number(value)
		case unix.IFLA_VXLAN_PORT:
			if len(value) == 2 {
				v.Port = binary.BigEndian.Uint16(value)
			}
		case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
			v.Local, _ = netip.AddrFromSlice(value)
		case unix.IFLA_VXLAN_LEARNING:
			v.Learning = number(value) != 0
		}
	}
	return v
}
