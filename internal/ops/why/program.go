package why

import (
	"slices"

	"github.com/tenon-cni/tenon/internal/host"
)

// plainQdiscs are the qdiscs that drop packets only if the link is overloaded.
var plainQdiscs = []string{"", "noqueue", "fq_codel", "fq", "mq", "pfifo", "pfifo_fast"}

// programs notes what sees the packets of a link and cannot be evaluated: chains of nftables at the
// link, qdiscs, XDP programs, eBPF programs of tcx, and filters of tc.
func (w *walk) programs(n *host.Namespace, l *host.Link, hook string) {
	if hook == "egress" && !slices.Contains(plainQdiscs, l.Qdisc) {
		w.doubt("qdisc %s of %s %s (tc -s qdisc show dev %[2]s)", l.Qdisc, l.Name, w.in(n))
	}
	for _, c := range w.ruleset(n).AtLink(l.Name, hook == "egress") {
		w.doubt("%s at %s %s (%s)", c.Title(), l.Name, w.in(n), c.Command())
	}
	if l.XDP && hook == "ingress" {
		w.doubt("the XDP program of %s %s (ip link show %s)", l.Name, w.in(n), l.Name)
	}
	for _, f := range l.Filters {
		switch to := n.Link(f.Redirect); {
		case f.Hook != hook || !f.Opaque && f.Redirect == 0:
		case to != nil && to.Kind == "ifb":
			w.doubt("the rate limit of %s %s (tc -s qdisc show dev %s)", l.Name, w.in(n), to.Name)
		default:
			w.doubt("%s at %s of %s %s (tc filter show dev %s %s)",
				f.Text, hook, l.Name, w.in(n), l.Name, hook)
		}
	}
}

// switched ends the walk at a port of a switch that has rules of its own. It returns false if l is
// none.
func (w *walk) switched(n *host.Namespace, l *host.Link) bool {
	port := l
	if m := n.Link(l.Master); m != nil {
		port = m
	}
	if port.Kind != "openvswitch" {
		return false
	}
	w.end(n, "switch", Unknown, "%s is a port of Open vSwitch; this command does not evaluate its "+
		"flows (ovs-appctl ofproto/trace)", l.Name)
	return true
}

// transformed checks the policies of IPsec. It returns false if the walk ends.
func (w *walk) transformed(n *host.Namespace, direction string) bool {
	p := w.packet
	policy := n.Policy(direction, p.Src, p.Dst, p.Protocol)
	switch {
	case policy == nil:
	case policy.Blocks:
		return w.repair(n, "xfrm", cause("xfrm.block",
			"the IPsec policy %s -> %s (%s) %s drops packets from %s to %s",
			policy.Src, policy.Dst, direction, w.in(n), p.Src, p.Dst).
			at(policy.Src.String()+" -> "+policy.Dst.String()+" "+direction).
			advise("%sip xfrm policy delete src %s dst %s dir %s", w.prefix(n), policy.Src, policy.Dst,
				direction).
			see("ip xfrm policy"))
	case policy.Encrypts:
		w.doubt("the IPsec policy %s -> %s (%s) %s (ip xfrm policy; ip xfrm state)",
			policy.Src, policy.Dst, direction, w.in(n))
	}
	return true
}
