package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/kernel/rtnl"
)

// VLANTakenError says that a parent has a VLAN already, and which link that is, if it could be found.
type VLANTakenError struct {
	ID     uint16
	Parent string
	Link   Link // the zero Link if it is in a namespace that has no identifier in that of the parent
	Here   bool // it is in the parent's namespace
	cause  error
}

func (e *VLANTakenError) Error() string {
	return fmt.Sprintf("VLAN %d of %s exists already", e.ID, e.Parent)
}

func (e *VLANTakenError) Unwrap() error { return e.cause }

// vlanTaken looks for the VLAN of a parent that is here.
func (s *Space) vlanTaken(parent Link, id uint16, cause error) error {
	taken := &VLANTakenError{ID: id, Parent: parent.Name, cause: cause}
	found := func(links []Link, nsid int) bool {
		for _, l := range links {
			if l.Kind == "vlan" && l.VLAN == int(id) && l.Parent == parent.Index && l.ParentNSID == nsid {
				taken.Link = l
				return true
			}
		}
		return false
	}
	if links, err := s.rt.Links(); err == nil && found(links, rtnl.SameNamespace) {
		taken.Here = true
		return taken
	}
	// An error says less of what is wrong than the one that is on its way.
	own, all, _ := s.rt.Namespaces()
	for _, nsid := range all {
		if links, err := s.rt.LinksIn(nsid); err == nil && found(links, own) {
			break
		}
	}
	return taken
}
