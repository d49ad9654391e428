package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// VLAN is a VLAN of a bridge port (bridge(8)).
type VLAN = netlink.VLAN

// VLANs lists the VLANs of a bridge port by their IDs.
func (s Links) VLANs(port Link) ([]VLAN, error) { return s.space.rt.Links.VLANs(port) }

// AddVLANs adds a bridge port to VLANs; it replaces the flags of existing ones. The VLANs end with
// the membership, so Rollback of [Links.SetMaster] reverts it.
func (s Links) AddVLANs(port Link, list []VLAN) error {
	return s.space.tx.Do(fmt.Sprintf("add vlan %s dev %s", FormatVLANs(list), port.Name),
		func() error { return s.space.rt.Links.AddVLANs(port, list) }, nil)
}

// DeleteVLANs removes a bridge port from VLANs and ignores missing ones. Rollback of
// [Links.SetMaster] reverts it.
func (s Links) DeleteVLANs(port Link, list []VLAN) error {
	return s.space.tx.Do(fmt.Sprintf("delete vlan %s dev %s", FormatVLANs(list), port.Name),
		func() error { return s.space.rt.Links.DeleteVLANs(port, list) }, nil)
}

// FormatVLANs formats VLANs for people: "1 pvid untagged, 101, 200-210".
func FormatVLANs(list []VLAN) string { return netlink.FormatVLANs(list) }
