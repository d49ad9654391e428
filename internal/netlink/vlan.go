package netlink

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// VLAN is an entry in the table of VLANs that a bridge port is in (bridge(8)).
type VLAN struct {
	ID       uint16 // 1 to 4094
	PVID     bool   // frames that come in without a tag belong to it; a port has one such entry at most
	Untagged bool   // frames go out without a tag
}

// vlanInfo is struct bridge_vlan_info (linux/if_bridge.h).
type vlanInfo struct{ Flags, ID uint16 }

// Of linux/if_bridge.h and, the filter, linux/rtnetlink.h.
const (
	filterVLANs = 1 << 1 // RTEXT_FILTER_BRVLAN

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
	mask := []Attribute{Uint32(unix.IFLA_EXT_MASK, filterVLANs)}
	list, err := list(c.conn, unix.RTM_GETLINK, unix.IfInfomsg{Family: unix.AF_BRIDGE}, mask,
		func(list []VLAN, m []byte) ([]VLAN, error) {
			var about unix.IfInfomsg
			attributes, err := ReadBody(m, &about)
			if err != nil || int(about.Index) != l.Index {
				return list, err
			}
			return appendVLANs(list, attributes)
		})
	if err != nil {
		return nil, fmt.Errorf("list VLANs: %w", err)
	}
	return list, nil
}

// appendVLANs appends the VLANs in the attributes of a port.
func appendVLANs(list []VLAN, attributes []byte) ([]VLAN, error) {
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
			list = append(list, VLAN{ID: info.ID, PVID: info.Flags&vlanPVID != 0, Untagged: info.Flags&vlanUntagged != 0})
		}
	}
	return list, nil
}

// AddVLANs puts a bridge port into VLANs. An existing entry gets the given flags.
func (c Links) AddVLANs(port Link, list []VLAN) error {
	return ranges(list, func(first VLAN, last uint16) error {
		var flags uint16
		if first.PVID {
			flags |= vlanPVID
		}
		if first.Untagged {
			flags |= vlanUntagged
		}
		return c.conn.vlans(unix.RTM_SETLINK, port, flags, first.ID, last)
	})
}

// DeleteVLANs takes a bridge port out of VLANs, as far as it is in them.
func (c Links) DeleteVLANs(port Link, list []VLAN) error {
	return ranges(list, func(first VLAN, last uint16) error { return c.conn.vlans(unix.RTM_DELLINK, port, 0, first.ID, last) })
}

// vlans changes one VLAN of a bridge port, or those up to last unless that is 0.
func (c *Conn) vlans(kind uint16, port Link, flags, first, last uint16) error {
	spec := []Attribute{Uint16(bridgeFlags, bridgeOfPort)}
	info := func(flags, id uint16) {
		spec = append(spec, Struct(bridgeVLANInfo, vlanInfo{Flags: flags, ID: id}))
	}
	if last == 0 {
		info(flags, first)
	} else {
		info(flags|vlanRangeBegin, first)
		info(flags|vlanRangeEnd, last)
	}
	about := unix.IfInfomsg{Family: unix.AF_BRIDGE, Index: int32(port.Index)}
	return c.change(kind, 0, about, Nest(unix.IFLA_AF_SPEC, spec...))
}

// FormatVLANs is a list for people: "1 pvid untagged, 101, 200-210".
func FormatVLANs(list []VLAN) string {
	var parts []string
	_ = ranges(list, func(first VLAN, last uint16) error {
		part := fmt.Sprint(first.ID)
		if last != 0 {
			part += fmt.Sprintf("-%d", last)
		}
		if first.PVID {
			part += " pvid"
		}
		if first.Untagged {
			part += " untagged"
		}
		parts = append(parts, part)
		return nil
	})
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// ranges calls do for each run of VLANs with ascending IDs and the same flags, with 0 for the last
// of just one. The kernel takes no range that is to be the PVID.
func ranges(list []VLAN, do func(first VLAN, last uint16) error) error {
	for len(list) > 0 {
		n := 1
		for n < len(list) && !list[0].PVID && list[n] == (VLAN{ID: list[n-1].ID + 1, Untagged: list[0].Untagged}) {
			n++
		}
		last := list[n-1].ID
		if n == 1 {
			last = 0
		}
		if err := do(list[0], last); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}
