package why

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/host"
)

// child is a macvlan or ipvlan device, or a VLAN device, on a parent.
type child struct {
	space *host.Namespace
	link  *host.Link
}

// isChild reports whether a link sends its frames through a parent.
func isChild(l *host.Link) bool {
	return l.Kind == "macvlan" || l.Kind == "ipvlan" || l.Kind == "vlan"
}

// childWith returns a child of a parent for which keep is true, in a namespace that has an address.
func (w *walk) childWith(
	n *host.Namespace, parent *host.Link, a netip.Addr, keep func(l, holder *host.Link) bool,
) *child {
	for i := range w.host.Namespaces {
		space := &w.host.Namespaces[i]
		holder := space.Holder(a)
		if holder == nil {
			continue
		}
		for j := range space.Links {
			l := &space.Links[j]
			if !isChild(l) || !keep(l, holder) {
				continue
			}
			if at, p := w.host.Peer(space, l); at == n && p != nil && p.Index == parent.Index {
				return &child{space, l}
			}
		}
	}
	return nil
}

// shared returns the macvlan or ipvlan device of a parent that gets the frames for an address. A
// macvlan device also answers for addresses of other links of its namespace; an ipvlan device has a
// table of its own addresses.
func (w *walk) shared(n *host.Namespace, parent *host.Link, a netip.Addr) *child {
	return w.childWith(n, parent, a, func(l, holder *host.Link) bool {
		return l.Kind == "macvlan" || l.Kind == "ipvlan" && l == holder
	})
}

// toParent sends a frame of a child.
func (w *walk) toParent(n *host.Namespace, link *host.Link, next netip.Addr) bool {
	at, parent := w.host.Peer(n, link)
	if parent == nil {
		return w.end(n, link.Kind, Unknown,
			"the parent of %s is in a namespace that this command does not see", link.Name)
	}
	if !parent.Up() && !w.down(at, parent) {
		return false
	}
	w.programs(at, parent, "egress")
	if link.Kind == "vlan" {
		return w.tagged(n, link, child{at, parent}, next)
	}
	if link.Kind == "ipvlan" && link.Mode != "l2" && w.shared(at, parent, w.packet.Dst) != nil {
		next = w.packet.Dst // the device looks for the destination, not for a neighbour
	}
	if s := w.shared(at, parent, next); s != nil {
		return w.toSibling(n, link, *s)
	}
	if at.Holder(next) != nil {
		title := w.linkTitle(n, link)
		return w.stop(n, link.Kind, parentIsolated(link.Kind, title, parent.Name, w.in(at)))
	}
	w.ok(n, link.Kind, "%s sends through its parent %s %s", link.Name, parent.Name, w.in(at))
	return w.wire(n, link, child{at, parent}, next)
}

// parentIsolated explains that a parent and its children exchange no frames.
func parentIsolated(kind, title, parent, where string) Culprit {
	return cause(kind+".parent",
		"%s and its parent %s %s never exchange frames: the kernel sends frames of a %s device to its "+
			"siblings and to the wire only", title, parent, where, kind).
		at(parent).
		advise("ip link add %s0 link %s type %[1]s mode bridge, and use the address of that device "+
			"for the host; or attach the container to a bridge", kind, parent).
		see("ip -d link show type %s", kind)
}

// toSibling delivers a frame to another child of the same parent.
func (w *walk) toSibling(n *host.Namespace, link *host.Link, s child) bool {
	for _, mode := range []string{link.Mode, s.link.Mode} {
		switch mode {
		case "private":
			return w.stop(n, link.Kind, cause("macvlan.private",
				"%s is in mode private: devices of one parent do not exchange frames in this mode",
				w.linkTitle(n, link)).
				at(link.Name+" "+w.in(n)).
				advise("set \"mode\": \"bridge\" in the configuration, and attach both containers again"))
		case "vepa":
			return w.end(n, link.Kind, Left,
				"%s is in mode vepa: the switch has to send the frame back", link.Name)
		}
	}
	if !s.link.Up() && !w.down(s.space, s.link) {
		return false
	}
	w.programs(s.space, s.link, "ingress")
	w.ok(n, link.Kind, "%s reaches %s %s on the same parent", link.Name, s.link.Name, w.in(s.space))
	w.path = append(w.path, crossing{n, s.space, link, s.link, w.reply, w.packet.Src})
	return w.arrive(s.space, s.link)
}

// wire sends an untagged frame of a link through a parent of it.
func (w *walk) wire(n *host.Namespace, link *host.Link, p child, next netip.Addr) bool {
	if p.link.Kind == "bridge" {
		return w.bridge(p.space, p.link, nil, next)
	}
	if isChild(p.link) {
		return w.toParent(p.space, p.link, next)
	}
	other, peer := w.host.Peer(p.space, p.link)
	if p.link.Kind != "veth" || peer == nil {
		return w.depart(n, link, next)
	}
	if !w.neighbour(n, link, child{other, peer}, next) {
		return false
	}
	w.path = append(w.path, crossing{n, other, link, peer, w.reply, w.packet.Src})
	return w.received(other, peer, next)
}

// tagged sends a frame of a VLAN device through its parent.
func (w *walk) tagged(n *host.Namespace, link *host.Link, p child, next netip.Addr) bool {
	w.ok(n, "vlan", "%s sends with VLAN %d through %s %s",
		link.Name, link.VLAN, p.link.Name, w.in(p.space))
	other, peer := w.host.Peer(p.space, p.link)
	switch {
	case p.link.Kind == "bridge" || isChild(p.link):
		return w.end(n, "vlan", Unknown, "this command does not follow VLAN %d through %s %s",
			link.VLAN, p.link.Kind, p.link.Name)
	case p.link.Kind != "veth" || peer == nil:
		return w.depart(n, link, next)
	case other.Link(peer.Master) != nil:
		return w.end(n, "vlan", Unknown, "this command does not follow VLAN %d through %s %s",
			link.VLAN, other.Link(peer.Master).Kind, other.Link(peer.Master).Name)
	}
	same := func(l, _ *host.Link) bool { return l.Kind == "vlan" && l.VLAN == link.VLAN }
	s := w.childWith(other, peer, next, same)
	if s == nil {
		return w.stop(n, "vlan", cause("vlan.none",
			"no device with VLAN %d on %s %s has %s", link.VLAN, peer.Name, w.in(other), next).
			at(peer.Name+" "+w.in(other)).
			advise("use the same VLAN on both sides").
			see("ip -d link show type vlan"))
	}
	w.path = append(w.path, crossing{n, s.space, link, s.link, w.reply, w.packet.Src})
	return w.arrive(s.space, s.link)
}
