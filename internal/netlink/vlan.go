package netlink

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// VLAN is an entry in the table of VLANs that a bridge port is in (bridge(8)).
type VLAN struct {
	ID       uint16 // 1 to 4094
	PVID     bool   // untagged received frames belong to it; at most one entry of a port has it
	Untagged bool   // frames are sent without a tag
}

// vlanInfo is struct bridge_vlan_info (linux/if_bridge.h).
type vlanInfo struct{ Flags, ID uint16 }

// FilterVLANs is RTEXT_FILTER_BRVLAN of linux/rtnetlink.h.
const FilterVLANs = 1 << 1

// Constants of linux/if_bridge.h.
const (
	bridgeFlags    = 0 // IFLA_BRIDGE_FLAGS
	bridgeOfPort   = 1 // BRIDGE_FLAGS_MASTER
	bridgeVLANInfo = 2 // IFLA_BRIDGE_VLAN_INFO

	vlanPVID       = 1 << 1 // BRIDGE_VLAN_INFO_…
	vlanUntagged   = 1 << 2
	vlanRangeBegin = 1 << 3
	vlanRangeEnd   = 1 << 4
)

// VLANs lists the VLANs of a bridge port, or of the bridge itself, by their IDs.
func (c Links) VLANs(l Link) ([]VLAN, error) {
	mask := []Attribute{Uint32(unix.IFLA_EXT_MASK, FilterVLANs)}
	list, err := list(c.conn, unix.RTM_GETLINK, unix.IfInfomsg{Family: unix.AF_BRIDGE}, mask,
		func(list []VLAN, m []byte) ([]VLAN, error) {
			var about unix.IfInfomsg
			attributes, err := ReadBody(m, &about)
			if err != nil || int(about.Index) != l.Index {
				return list, err
			}
			return AppendVLANs(list, attributes)
		})
	if err != nil {
		return nil, fmt.Errorf("list VLANs: %w", err)
	}
	return list, nil
}

// AppendVLANs appends the VLANs in the attributes of a bridge port or a bridge. The kernel lists
// them with [FilterVLANs].
func AppendVLANs(list []VLAN, attributes []byte) ([]VLAN, error) {
	for kind, spec := range Attributes(attributes) {
		if kind != unix.IFLA_AF_SPEC {
			continue
		}
		for kind, v := range Attributes(spec) {
			if kind != bridgeVLANInfo {
				continue
			}
			var info vlanInfo
			if _, err := ReadBody(v, &info); err != nil {
				return list, err
			}
			list = append(list,
				VLAN{ID: info.ID, PVID: info.Flags&vlanPVID != 0,
					Untagged: info.Flags&vlanUntagged != 0})
		}
	}
	return list, nil
}

// AddVLANs adds a bridge port to VLANs. An existing entry gets the given flags.
func (c Links) AddVLANs(port Link, list []VLAN) error {
	return c.conn.vlans(unix.RTM_SETLINK, port, list, func(v VLAN) (flags uint16) {
		if v.PVID {
			flags |= vlanPVID
		}
		if v.Untagged {
			flags |= vlanUntagged
		}
		return flags
	})
}

// DeleteVLANs removes a bridge port from VLANs; it ignores VLANs that the port is not in.
func (c Links) DeleteVLANs(port Link, list []VLAN) error {
	return c.conn.vlans(unix.RTM_DELLINK, port, list, func(VLAN) uint16 { return 0 })
}

// vlans changes VLANs of a bridge port, with one request for each range.
func (c *Conn) vlans(kind uint16, port Link, list []VLAN, flags func(VLAN) uint16) error {
	info := func(flags, id uint16) Attribute {
		return Struct(bridgeVLANInfo, vlanInfo{Flags: flags, ID: id})
	}
	about := unix.IfInfomsg{Family: unix.AF_BRIDGE, Index: int32(port.Index)}
	for _, r := range ranges(list) {
		flags, master := flags(r.VLAN), Uint16(bridgeFlags, bridgeOfPort)
		spec := []Attribute{master, info(flags, r.ID)}
		if r.last != r.ID {
			spec = []Attribute{master, info(flags|vlanRangeBegin, r.ID),
				info(flags|vlanRangeEnd, r.last)}
		}
		if err := c.change(kind, 0, about, Nest(unix.IFLA_AF_SPEC, spec...)); err != nil {
			return err
		}
	}
	return nil
}

// FormatVLANs formats a list for users: "1 pvid untagged, 101, 200-210".
func FormatVLANs(list []VLAN) string {
	var parts []string
	for _, r := range ranges(list) {
		part := fmt.Sprint(r.ID)
		if r.last != r.ID {
			part += fmt.Sprintf("-%d", r.last)
		}
		if r.PVID {
			part += " pvid"
		}
		if r.Untagged {
			part += " untagged"
		}
		parts = append(parts, part)
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// vlanRange is a run of VLANs with ascending IDs and the same flags.
type vlanRange struct {
	VLAN // the first
	last uint16
}

// ranges joins VLANs into ranges. The kernel accepts no range with the PVID.
func ranges(list []VLAN) (joined []vlanRange) {
	for _, v := range list {
		if n := len(joined); n > 0 {
			before := &joined[n-1]
			if !before.PVID && v == (VLAN{ID: before.last + 1, Untagged: before.Untagged}) {
				before.last = v.ID
				continue
			}
		}
		joined = append(joined, vlanRange{v, v.ID})
	}
	return joined
}
