package why

import (
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// large checks whether large packets take the same way: links with two ends of different MTU lose
// them silently, and a router has to report a packet that is too big to its sender (RFC 1191).
func (w *walk) large() {
	least := map[bool]int{} // of the links on the way before, by direction
	for _, c := range w.path {
		before, known := least[c.reply]
		if !known || c.out.MTU < before {
			least[c.reply] = c.out.MTU
		}
		if known && c.out.MTU < before && c.out.Master == 0 && !w.tooBig(c, before) {
			return
		}
	}
	for _, c := range w.path {
		if c.out.MTU != c.in.MTU {
			w.limit(c.from, cause("mtu.ends",
				"%s %s has MTU %d, its peer %s %s has %d: the smaller end drops large frames",
				c.out.Name, w.in(c.from), c.out.MTU, c.in.Name, w.in(c.to), c.in.MTU).
				advise("set the same MTU on both ends, and on the bridge between them"))
			return
		}
	}
}

// limit adds the cause for the loss of large packets.
func (w *walk) limit(n *host.Namespace, c Culprit) {
	if w.report.Verdict == "" {
		w.report.Verdict = Limited
	}
	w.blame(n, "mtu", c)
}

// tooBig evaluates the message of a router that a packet is too big for a link, to its sender. It
// returns false if the message is dropped.
func (w *walk) tooBig(c crossing, size int) bool {
	own := w.question.From
	for _, a := range c.from.Addrs {
		if a.Prefix.Addr().Is4() == w.question.To.Is4() && a.Scope == "global" {
			own = a.Prefix.Addr()
		}
	}
	icmp := &packet.Packet{Src: own, Dst: c.sender, Protocol: unix.IPPROTO_ICMP,
		DstPort: 3<<8 | 4, TTL: 64, Length: 576, Conn: packet.Connection{State: packet.Related}}
	if own.Is6() {
		icmp.Protocol, icmp.DstPort = unix.IPPROTO_ICMPV6, 2<<8
	}
	r := w.ruleset(c.from).Hook(unix.NF_INET_LOCAL_OUT, icmp)
	if r.Verdict == packet.Accept {
		return w.ok(c.from, "mtu", "%s has MTU %d, links before it %d; senders learn that by ICMP",
			c.out.Name, c.out.MTU, size)
	}
	w.limit(c.from, cause("mtu.black-hole",
		"%s has MTU %d, and %s drops the message \"fragmentation needed\": senders never learn it",
		c.out.Name, c.out.MTU, r.By.Title()).
		advise("accept ICMP type 3, or clamp the maximum segment size").
		see("%s", r.By.Command()))
	return false
}
