package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// VLAN is an entry in the table of VLANs that a bridge port is in (bridge(8)).
type VLAN = netlink.VLAN

// VLANs lists the VLANs of a bridge port by their IDs.
func (s Links) VLANs(port Link) ([]VLAN, error) { return s.space.rt.Links.VLANs(port) }

// AddVLANs puts a bridge port into VLANs; if it is in one of them, that gets the flags given. It lasts as long as port is
// one, so it is undone with [Links.SetMaster].
func (s Links) AddVLANs(port Link, list []VLAN) error {
	return s.space.tx.Do(fmt.Sprintf("add vlan %s dev %s", FormatVLANs(list), port.Name),
		func() error { return s.space.rt.Links.AddVLANs(port, list) }, nil)
}

// DeleteVLANs takes a bridge port out of VLANs, as far as it is in them. It is undone with [Links.SetMaster].
func (s Links) DeleteVLANs(port Link, list []VLAN) error {
	return s.space.tx.Do(fmt.Sprintf("delete vlan %s dev %s", FormatVLANs(list), port.Name),
		func() error { return s.space.rt.Links.DeleteVLANs(port, list) }, nil)
}

// FormatVLANs is a list for people: "1 pvid untagged, 101, 200-210".
func FormatVLANs(list []VLAN) string { return netlink.FormatVLANs(list) }
