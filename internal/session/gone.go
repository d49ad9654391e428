package session

import "github.com/tenon-cni/tenon/cni"

// Gone selects the attachments that DEL or GC cleans up: one attachment, or all attachments of a
// network except the valid ones.
type Gone struct {
	Network string
	One     cni.Attachment   // the attachment of DEL; the zero value for GC
	Valid   []cni.Attachment // for GC: the attachments of the network that stay

	owners     map[cni.Owner]bool // owners of valid attachments
	containers map[string]bool    // containers with a valid attachment
}

// GoneOne selects one attachment, for DEL.
func GoneOne(a cni.Attachment) Gone { return Gone{Network: a.Network, One: a} }

// GoneBut selects all attachments of a network except the valid ones, for GC.
func GoneBut(network string, valid []cni.ValidAttachment) Gone {
	g := Gone{Network: network, owners: map[cni.Owner]bool{}, containers: map[string]bool{}}
	for _, v := range valid {
		a := cni.Attachment{Network: network, Container: v.ContainerID, IfName: v.IfName}
		g.Valid = append(g.Valid, a)
		g.owners[a.Owner()], g.containers[v.ContainerID] = true, true
	}
	return g
}

// All reports whether g selects all attachments except the valid ones, for GC.
func (g Gone) All() bool { return g.One == cni.Attachment{} }

// Tag reports whether g selects the owner in a tag; see [cni.Attachment.Tag].
func (g Gone) Tag(tag string) bool {
	o, ok := cni.ParseTag(tag)
	return ok && g.Owner(o)
}

// Owner reports whether g selects an owner.
func (g Gone) Owner(o cni.Owner) bool {
	if !g.All() {
		return o == g.One.Owner()
	}
	return o.Network() == cni.NetworkOwner(g.Network) && !g.owners[o]
}

// Container reports whether g selects all attachments of a container, by its ID. It is for objects
// that do not distinguish the interfaces of a container.
func (g Gone) Container(id string) bool {
	if !g.All() {
		return id == g.One.Container
	}
	return !g.containers[id]
}
