package session

import "github.com/tenon-cni/tenon/cni"

// Gone tells what DEL and GC have to remove: what one attachment had, or all attachments of a network but the valid ones.
type Gone struct {
	Network string
	One     cni.Attachment   // what DEL is about; the zero value for GC
	Valid   []cni.Attachment // GC: those of the network that stay

	owners     map[cni.Owner]bool // of the valid attachments
	containers map[string]bool    // that have a valid attachment
}

// GoneOne is for DEL.
func GoneOne(a cni.Attachment) Gone { return Gone{Network: a.Network, One: a} }

// GoneBut is for GC.
func GoneBut(network string, valid []cni.ValidAttachment) Gone {
	g := Gone{Network: network, owners: map[cni.Owner]bool{}, containers: map[string]bool{}}
	for _, v := range valid {
		a := cni.Attachment{Network: network, Container: v.ContainerID, IfName: v.IfName}
		g.Valid = append(g.Valid, a)
		g.owners[a.Owner()], g.containers[v.ContainerID] = true, true
	}
	return g
}

// All reports whether all attachments but the valid ones are gone: GC.
func (g Gone) All() bool { return g.One == cni.Attachment{} }

// Tag reports whether a tag names an owner that is gone; see [cni.Attachment.Tag].
func (g Gone) Tag(tag string) bool {
	o, ok := cni.ParseTag(tag)
	return ok && g.Owner(o)
}

// Owner reports whether this owner is gone.
func (g Gone) Owner(o cni.Owner) bool {
	if !g.All() {
		return o == g.One.Owner()
	}
	return o.Network() == cni.NetworkOwner(g.Network) && !g.owners[o]
}

// Container reports whether a container, by its ID, has no valid attachment to the network. It is for what does not tell
// the interfaces of a container apart.
func (g Gone) Container(id string) bool {
	if !g.All() {
		return id == g.One.Container
	}
	return !g.containers[id]
}
