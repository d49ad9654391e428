package kernel

import (
	"fmt"
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

// vlanTaken looks for the VLAN of a parent that is here. An error of the search says less than cause.
func (s *Space) vlanTaken(parent Link, id uint16, cause error) *VLANTakenError {
	taken := &VLANTakenError{ID: id, Parent: parent.Name, cause: cause}
	taken.Link, taken.Here, _ = s.onParent(parent.Index, func(l Link) bool { return l.Kind == "vlan" && l.VLAN == int(id) })
	return taken
}
