package attach

import "github.com/tenon-cni/tenon/cni"

// Gone tells what DEL and GC have to remove: what one attachment had, or all attachments of a network but the valid ones.
type Gone struct {
	Network string
	One     cni.Attachment // what DEL is about; the zero value for GC

	owners     map[cni.Owner]bool // of the valid attachments
	containers map[string]bool    // that have a valid attachment
	valid      []cni.Attachment
}

// goneOne is for DEL.
func goneOne(a cni.Attachment) Gone { return Gone{Network: a.Network, One: a} }

// goneBut is for GC.
func goneBut(network string, valid []cni.ValidAttachment) Gone {
	g := Gone{Network: network, owners: map[cni.Owner]bool{}, containers: map[string]bool{}}
	for _, v := range valid {
		a := cni.Attachment{Network: network, Container: v.ContainerID, IfName: v.IfName}
		g.valid = append(g.valid, a)
		g.owners[a.Owner()], g.containers[v.ContainerID] = true, true
	}
	return g
}

// All reports whether all attachments but the valid ones are gone: GC.
func (g Gone) All() bool { return g.One == cni.Attachment{} }

// Tag reports whether a tag names an owner that is gone; see [cni.Attachment.Tag].
func (g Gone) Tag(tag string) bool {
	o, ok := cni.ParseTag(tag)
	return ok && g.owner(o)
}

func (g Gone) owner(o cni.Owner) bool {
	if !g.All() {
		return o == g.One.Owner()
	}
	return o.Network() == cni.NetworkOwner(g.Network) && !g.owners[o]
}
