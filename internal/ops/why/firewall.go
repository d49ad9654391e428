package why

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// hook evaluates the chains of a hook, which can change the packet.
func (w *walk) hook(n *host.Namespace, hook uint32, name string) bool {
	before := *w.packet
	r := w.ruleset(n).Hook(hook, w.packet)
	return w.verdict(n, name, r, before)
}

func (w *walk) ruleset(n *host.Namespace) *packet.Rules {
	if w.rules[n.ID] == nil {
		w.rules[n.ID] = packet.NewRules(n.Ruleset, packet.NamespaceLookup{Namespace: n})
	}
	return w.rules[n.ID]
}

// bridgeRules evaluates what sees a frame between two ports: the chains of family bridge and, with
// br_netfilter, the ones of the network layer.
func (w *walk) bridgeRules(n *host.Namespace, b, in, out *host.Link) bool {
	p := w.packet
	before := *p
	p.In, p.Out = packet.InterfaceOf(n, in), packet.InterfaceOf(n, out)
	for _, hook := range []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING} {
		if !w.verdict(n, "bridge rules", w.ruleset(n).Bridge(hook, p), before) {
			return false
		}
	}
	if !w.filtersBridged(n, b) {
		return true
	}
	hooks := []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING}
	if w.bridged {
		w.bridged, hooks = false, hooks[1:]
	} else {
		w.track(n)
	}
	p.In, p.Out = packet.InterfaceOf(n, b), packet.InterfaceOf(n, b)
	for _, hook := range hooks {
		result := w.ruleset(n).Hook(hook, p)
		if result.Verdict != packet.Accept {
			return w.stop(n, "br_netfilter", w.dropped(n, result, before, fmt.Sprintf(
				"br_netfilter passes bridged frames of %s to the firewall, and ", b.Name)))
		}
	}
	w.posted()
	return true
}

// verdict ends the walk unless a hook accepts the packet.
func (w *walk) verdict(n *host.Namespace, name string, r packet.Result, before packet.Packet) bool {
	for _, d := range r.Doubts {
		w.report.Doubts = append(w.report.Doubts, fmt.Sprintf("cannot evaluate %s: %s", d.Place, d.Part))
	}
	switch r.Verdict {
	case packet.Accept:
		return true
	case packet.Unknown:
		return w.end(n, name, Unknown, "%s hands the packet to a program", r.By)
	}
	return w.stop(n, name, w.dropped(n, r, before, ""))
}

// dropped explains a verdict against the packet.
func (w *walk) dropped(n *host.Namespace, r packet.Result, before packet.Packet, cause string) Culprit {
	p := w.packet
	verb := "drops"
	if r.Verdict == packet.Reject {
		verb = "rejects"
	}
	what := fmt.Sprintf("packets from %s to %s", p.Src, destination(p.Dst, p.DstPort, p.Protocol))
	c := Culprit{ID: "firewall.rule", See: list(r.By)}
	e := w.entry
	switch {
	case r.By.Number == 0:
		c.ID = "firewall.policy"
		c.Text = fmt.Sprintf("%s%s %s %s; no rule accepts them", cause, title(r.By), verb, what)
		c.Fix = accept(r.By, p)
	default:
		c.Text = fmt.Sprintf("%srule %d of %s %s %s", cause, r.By.Number, title(r.By), verb, what)
		c.Fix = fmt.Sprintf("delete the rule, or accept the packets before it: %s", accept(r.By, p))
	}
	if e != nil && !w.reply && (e.came.dst != p.Dst || e.came.dstPort != p.DstPort) {
		c.Text += fmt.Sprintf(", where %s was translated to", destination(e.came.dst, e.came.dstPort, p.Protocol))
	}
	if w.reply {
		c.Text += " (the reply)"
	}
	if r.By.Comment != "" {
		c.Text += fmt.Sprintf(" (%q)", r.By.Comment)
	}
	return c
}

// title names a chain as its program does.
func title(p *packet.Place) string {
	if program, table := p.Program(); program != "" {
		return fmt.Sprintf("chain %s of %s (table %s)", p.Chain, program, table)
	}
	return fmt.Sprintf("chain %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
}

func list(p *packet.Place) string {
	if program, table := p.Program(); program != "" {
		return fmt.Sprintf("%s -t %s -S %s", program, table, p.Chain)
	}
	return fmt.Sprintf("nft -a list chain %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
}

// accept returns the command that accepts packets from the incoming interface.
func accept(place *packet.Place, p *packet.Packet) string {
	name := cmp.Or(p.In.Name, "lo")
	if program, _ := place.Program(); program != "" {
		return fmt.Sprintf("%s -I %s -i %s -j ACCEPT, and the reply direction", program, place.Chain, name)
	}
	return fmt.Sprintf("nft insert rule %s %s %s iifname %s accept, and the reply direction", place.Table.Family,
		place.Table.Name, place.Chain, name)
}
