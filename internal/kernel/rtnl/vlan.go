package rtnl

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
)

// VLAN is an entry in the table of VLANs that a bridge port is in (bridge(8)).
type VLAN struct {
	ID       uint16 // 1 to 4094
	PVID     bool   // frames that come in without a tag belong to it; a port has one such entry at most
	Untagged bool   // frames go out without a tag
}

// VLANs lists the VLANs of a bridge port, or of the bridge itself, by their IDs.
func (c *Conn) VLANs(l Link) ([]VLAN, error) {
	all, err := c.h.BridgeVlanList()
	if err != nil {
		return nil, fmt.Errorf("list VLANs: %w", err)
	}
	var list []VLAN
	for _, v := range all[int32(l.Index)] {
		list = append(list, VLAN{ID: v.Vid, PVID: v.Flags&nl.BRIDGE_VLAN_INFO_PVID != 0, Untagged: v.Flags&nl.BRIDGE_VLAN_INFO_UNTAGGED != 0})
	}
	return list, nil
}

// AddVLANs puts a bridge port into VLANs. What is there gets the flags given.
func (c *Conn) AddVLANs(port Link, list []VLAN) error {
	return ranges(list, func(first VLAN, last uint16) error {
		return c.h.BridgeVlanAddRange(ref(port), first.ID, last, first.PVID, first.Untagged, false, true)
	})
}

// DeleteVLANs takes a bridge port out of VLANs, as far as it is in them.
func (c *Conn) DeleteVLANs(port Link, list []VLAN) error {
	return ranges(list, func(first VLAN, last uint16) error {
		return c.h.BridgeVlanDelRange(ref(port), first.ID, last, false, false, false, true)
	})
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

// ranges calls do for each run of VLANs with ascending IDs and the same flags, with 0 for the last of just one. The kernel
// takes no range that is to be the PVID.
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
