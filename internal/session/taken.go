package session

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// CodeTaken is the code of an error that says that another attachment has what this one wants, such as a port of the host.
const CodeTaken = plugin.CodeTaken

// SameContainer reports whether a tag is of an attachment of the container, to whatever network.
func (s *Core) SameContainer(tag string) bool {
	_, ok := s.Namesake(tag)
	return ok
}

// Namesake returns the attachment of the container, to whatever network, that a tag names. ok is false if the tag names
// another container, or has no room for the network and the interface.
func (s *Core) Namesake(tag string) (a cni.Attachment, ok bool) {
	part := strings.SplitN(tag, " ", 4) // see cni.Attachment.Tag
	if len(part) != 4 {
		return a, false
	}
	a = cni.Attachment{Network: part[1], IfName: part[2], Container: s.ContainerID}
	return a, a.Tag() == tag
}

// Holder names the attachment whose tag that is, for people. What is no tag it returns as it is.
func Holder(tag string) string {
	if _, ours := cni.ParseTag(tag); ours {
		if part := strings.SplitN(tag, " ", 4); len(part) == 4 { // see cni.Attachment.Tag
			return fmt.Sprintf("container %s, interface %s, network %s", part[3], part[2], part[1])
		}
	}
	return tag
}
