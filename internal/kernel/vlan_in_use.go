package kernel

import (
	"fmt"
)

// VLANInUseError reports that a parent has a VLAN already, and which link that is, if the search
// found it.
type VLANInUseError struct {
	ID     uint16
	Parent string
	Link   Link // the zero Link if it is in a namespace that has no identifier in that of the parent
	Here   bool // it is in the parent's namespace
	cause  error
}

func (e *VLANInUseError) Error() string {
	return fmt.Sprintf("VLAN %d of %s exists already", e.ID, e.Parent)
}

func (e *VLANInUseError) Unwrap() error { return e.cause }

// vlanInUse looks for the VLAN of a parent that is here. An error of the search says less than cause.
func (s *Space) vlanInUse(parent Link, id uint16, cause error) *VLANInUseError {
	inUse := &VLANInUseError{ID: id, Parent: parent.Name, cause: cause}
	inUse.Link, inUse.Here, _ = s.onParent(parent.Index, func(l Link) bool { return l.Kind == "vlan" && l.VLAN == int(id) })
	return inUse
}
