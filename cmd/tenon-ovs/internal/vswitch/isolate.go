package vswitch

import (
	"cmp"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// carries reports whether a port sends and receives frames of a VLAN (ovs-vswitchd.conf.db(5),
// table Port, "VLAN Configuration").
func (p *port) carries(vlan int) bool {
	mode := p.mode
	if mode == "" && p.tagged {
		mode = "access"
	}
	switch mode {
	case "access", "dot1q-tunnel":
		return p.tag == vlan
	case "native-tagged", "native-untagged":
		if p.tag == vlan {
			return true
		}
	}
	return len(p.trunks) == 0 || slices.Contains(p.trunks, vlan)
}

// represented is a segment and a VLAN of a bridge that represents it.
type represented struct{ vni, tag int }

// segments returns the segments of a bridge in ascending order. A segment has an entry of the
// bridge or, if another program has removed the entry, a port.
func (s *state) segments(b *bridge) (list []represented) {
	for vni, tag := range b.tags() {
		list = append(list, represented{vni, tag})
	}
	for _, p := range s.on(b) {
		if p.vni() != 0 && p.tag != 0 {
			list = append(list, represented{p.vni(), p.tag})
		}
	}
	slices.SortFunc(list, func(a, b represented) int {
		return cmp.Or(cmp.Compare(a.vni, b.vni), cmp.Compare(a.tag, b.tag))
	})
	return slices.Compact(list)
}

// apart returns an error if a port outside all segments would carry the tag of one.
func (s *state) apart(b *bridge, want ovs.Port) error {
	p := &port{tag: want.Tag, tagged: want.Tag != 0, trunks: want.Trunks}
	for _, segment := range s.segments(b) {
		if !p.carries(segment.tag) {
			continue
		}
		const represents = "%d represents VXLAN segment %d on bridge %s"
		switch {
		case p.tagged:
			return invalid("vlan: "+represents, segment.tag, segment.vni, b.name).
				WithDetails("use another vlan or another bridge, or set vxlanID to join the segment")
		case len(p.trunks) > 0:
			return invalid("trunk: "+represents, segment.tag, segment.vni, b.name).
				WithDetails("remove this VLAN from trunk, or use another bridge")
		}
		return invalid("the port would be a trunk of all VLANs, but "+represents, segment.tag,
			segment.vni, b.name).
			WithDetails("set vlan or trunk, or use another bridge")
	}
	return nil
}

// alone returns an error if the port of a container outside a segment carries its tag. Exposure
// lists such ports of other programs. The local port of the bridge belongs to the node.
func (s *state) alone(b *bridge, want ovs.Port, tag int) (ovs.Exposure, error) {
	exposure := ovs.Exposure{VLAN: tag}
	for _, p := range s.on(b) {
		a := s.attached(p)
		switch ours := p.ids[idOwner] == ownerOurs; {
		case !p.carries(tag), p.name == b.name, ours && p.vni() == want.Segment.VNI:
		case !ours:
			exposure.Ports = append(exposure.Ports, p.name)
		case p.container() && a.Owner.Attachment != want.Owner.Attachment:
			return exposure, reaches(b, a, want.Segment.VNI, tag)
		}
	}
	return exposure, nil
}

// reaches returns the error about the port of a container that carries the tag of a segment.
func reaches(b *bridge, a ovs.Attached, vni, tag int) *cni.Error {
	return invalid("vxlanID: the port of container %s (network %s, %s) carries VLAN %d, the tag of "+
		"VXLAN segment %d on bridge %s", a.Owner.Container, a.Owner.Network, a.Owner.IfName, tag, vni,
		b.name).
		WithDetails("attach container " + a.Owner.Container +
			" with vlan or with another trunk, or use another bridge")
}
