package why

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// large checks whether large packets take the same way: links with two ends of different MTU lose
// them silently, and a router must be able to tell the sender that a packet is too big (RFC 1191).
func (w *walk) large() {
	for _, c := range w.path {
		if c.out.MTU != c.in.MTU {
			w.limit(c.from, Culprit{ID: "mtu.ends",
				Text: fmt.Sprintf("%s %s has MTU %d, its peer %s %s has %d: the smaller end drops large frames",
					c.out.Name, w.in(c.from), c.out.MTU, c.in.Name, w.in(c.to), c.in.MTU),
				Fix: "set the same MTU on both ends, and on the bridge between them"})
			return
		}
	}
	first := 0
	for _, c := range w.path {
		if first == 0 || c.out.MTU > first {
			first = c.out.MTU
			continue
		}
		if c.out.MTU < first && c.out.Master == 0 {
			w.tooBig(c.from, c.out, first)
			return
		}
	}
}

// limit adds the cause for the loss of large packets.
func (w *walk) limit(n *host.Namespace, c Culprit) {
	w.report.Verdict = Limited
	w.report.Culprits = append(w.report.Culprits, c)
	w.step(n, "mtu", "stopped", c.Text)
}

// tooBig evaluates the message of a router to the sender of a large packet.
func (w *walk) tooBig(n *host.Namespace, out *host.Link, size int) {
	p := w.packet
	icmp := &packet.Packet{Src: p.Src, Dst: p.Dst, Protocol: unix.IPPROTO_ICMP, DstPort: 3<<8 | 4, TTL: 64,
		Length: 576, Conn: packet.Connection{State: packet.Related}}
	if a := n.Of(out.Index); len(a) > 0 {
		icmp.Src = a[0].Prefix.Addr()
	}
	if p.Dst.Is6() {
		icmp.Protocol, icmp.DstPort = unix.IPPROTO_ICMPV6, 2<<8
	}
	r := w.ruleset(n).Hook(unix.NF_INET_LOCAL_OUT, icmp)
	if r.Verdict == packet.Accept {
		w.ok(n, "mtu", "%s has MTU %d, others %d; senders learn that by ICMP", out.Name, out.MTU, size)
		return
	}
	w.limit(n, Culprit{ID: "mtu.black-hole", See: see(r.By),
		Text: fmt.Sprintf("%s has MTU %d, and %s drops the message \"fragmentation needed\": senders never learn it",
			out.Name, out.MTU, title(r.By)),
		Fix: "accept ICMP type 3, or clamp the maximum segment size"})
}
