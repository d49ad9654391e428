package kernel

import (
	"fmt"
)

// VLANInUseError reports that a parent already has a VLAN, and the link of that VLAN, if found.
type VLANInUseError struct {
	ID     uint16
	Parent string
	Link   Link // the zero Link if its namespace has no identifier in the parent's namespace
	Here   bool // Link is in the parent's namespace
	cause  error
}

func (e *VLANInUseError) Error() string {
	return fmt.Sprintf("VLAN %d of %s exists already", e.ID, e.Parent)
}

func (e *VLANInUseError) Unwrap() error { return e.cause }

// vlanInUse looks for the link of a VLAN on a parent in this space. It ignores errors of the
// search, because cause says more.
func (s *Space) vlanInUse(parent Link, id uint16, cause error) *VLANInUseError {
	inUse := &VLANInUseError{ID: id, Parent: parent.Name, cause: cause}
	inUse.Link, inUse.Here, _ = s.onParent(parent.Index, func(l Link) bool { return l.Kind == "vlan" && l.VLAN == int(id) })
	return inUse
}
