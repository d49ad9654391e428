package why

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// hook evaluates the chains of a hook, which can change the packet.
func (w *walk) hook(n *host.Namespace, hook uint32, name string) bool {
	return w.passes(n, name, "", func(r *packet.Rules) packet.Result { return r.Hook(hook, w.packet) })
}

func (w *walk) ruleset(n *host.Namespace) *packet.Rules {
	if w.rules[n.ID] == nil {
		prepared := w.known.prepared.rules
		if prepared[n.ID] == nil {
			prepared[n.ID] = packet.NewRules(n.Ruleset, packet.NamespaceLookup{Namespace: n})
		}
		w.rules[n.ID] = prepared[n.ID].Fresh()
	}
	return w.rules[n.ID]
}

// bridgeRules evaluates what sees a frame between two ports: the chains of family bridge and, with
// br_netfilter, the ones of the network layer.
func (w *walk) bridgeRules(n *host.Namespace, b, in, out *host.Link) bool {
	p := w.packet
	p.In, p.Out = packet.InterfaceOf(n, in), packet.InterfaceOf(n, out)
	hooks := []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING}
	for _, hook := range hooks {
		bridge := func(r *packet.Rules) packet.Result { return r.Bridge(hook, p) }
		if !w.passes(n, "bridge rules", "", bridge) {
			return false
		}
	}
	if !w.filtersBridged(n, b) {
		return true
	}
	if w.bridged {
		w.bridged, hooks = false, hooks[1:]
	} else {
		if !w.track(n) {
			return false
		}
	}
	p.In, p.Out = packet.InterfaceOf(n, b), packet.InterfaceOf(n, b)
	for _, hook := range hooks {
		cause := fmt.Sprintf("br_netfilter passes bridged frames of %s to the firewall, and ", b.Name)
		inet := func(r *packet.Rules) packet.Result { return r.Hook(hook, p) }
		if !w.passes(n, "br_netfilter", cause, inet) {
			return false
		}
	}
	w.posted()
	return true
}

// passes evaluates a hook. If it drops the packet, the evaluation goes on as if the chain accepted
// it. It returns false if the walk ends. cause begins the sentence about a drop.
func (w *walk) passes(
	n *host.Namespace, name, cause string, hook func(*packet.Rules) packet.Result,
) bool {
	rules := w.ruleset(n)
	for {
		before, chosen := *w.packet, w.choices.Of()
		r := hook(rules)
		w.doubts(n, r)
		switch r.Verdict {
		case packet.Accept:
			return true
		case packet.Unknown:
			return w.end(n, name, Unknown, "%s hands the packet to a program", r.By)
		}
		if !w.repair(n, name, w.dropped(n, r, cause)) {
			return false
		}
		rules.Pass(r.Base)
		*w.packet = before
		w.choices.Rewind(chosen)
	}
}

// doubts notes the rules that could not be evaluated.
func (w *walk) doubts(n *host.Namespace, r packet.Result) {
	for _, p := range r.Limits {
		w.assume("the limit of rule %d of %s %s is not exhausted", p.Number, p.Title(), w.in(n))
	}
	for _, d := range r.Doubts {
		where := ""
		if n != w.host.Own() {
			where = " " + w.in(n)
		}
		what := fmt.Sprintf("rule %d of ", d.Place.Number)
		if d.Place.Number == 0 { // its rules could not be read
			what = ""
		}
		w.doubt("cannot evaluate %s%s%s: %s", what, d.Place.Title(), where, d.Part)
	}
}

// dropped explains a verdict against the packet.
func (w *walk) dropped(n *host.Namespace, r packet.Result, cause string) Culprit {
	p := w.packet
	verb := "drops"
	if r.Verdict == packet.Reject {
		verb = "rejects"
	}
	what := fmt.Sprintf("packets from %s to %s", p.Src, destination(p.Dst, p.DstPort, p.Protocol))
	c := Culprit{ID: "firewall.rule", See: r.By.Command(), Handle: r.By.Handle,
		Packets: r.By.Packets, Owner: packet.Owner(n.Ruleset, *r.By),
		rule: &rule{n.ID, r.By.Chain, r.By.Table, r.By.Handle}}
	c.Object = fmt.Sprintf("%s %s, rule %d", r.By.Title(), w.in(n), r.By.Number)
	switch {
	case r.By.Number == 0:
		c.ID = "firewall.policy"
		c.Object = fmt.Sprintf("%s %s, policy", r.By.Title(), w.in(n))
		c.Text = fmt.Sprintf("%s%s %s %s by its policy; no rule accepts them%s",
			cause, r.By.Title(), verb, what, setBy(c.Owner))
	default:
		c.Text = fmt.Sprintf("%srule %d of %s %s %s", cause, r.By.Number, r.By.Title(), verb, what)
	}
	c.Fix, c.Advice = w.accept(n, r, c.Owner)
	if e := w.entry; e != nil && !w.reply && (e.came.dst != p.Dst || e.came.dstPort != p.DstPort) {
		c.Text += fmt.Sprintf(", where %s was translated to",
			destination(e.came.dst, e.came.dstPort, p.Protocol))
	}
	if w.reply {
		c.Text += " (the reply)"
	}
	if r.By.Comment != "" {
		c.Text += fmt.Sprintf(" (%q)", r.By.Comment)
	}
	return c
}

// setBy names the program that sets the policy of a chain that all programs share.
func setBy(owner string) string {
	switch owner {
	case "docker":
		return ". Docker set the policy when it started, and accepts only its own bridges"
	case "ufw":
		return ". ufw set the policy"
	}
	return ""
}

// accept returns the commands that accept the packets of this flow in the base chain that drops
// them, and nothing else. A rule at its beginning decides for the whole chain. Chains of another
// program are its own business: accept then returns advice.
func (w *walk) accept(n *host.Namespace, r packet.Result, owner string) (fix, advice string) {
	p := w.packet
	base := packet.Place{Table: r.Base.Table, Chain: r.Base.Name}
	program, table := base.Program()
	switch {
	case owner == "firewalld":
		return "", fmt.Sprintf("firewall-cmd --zone=trusted --add-source=%s", p.Src)
	case owner == "ufw" && p.Out.Name != "":
		return "", fmt.Sprintf("ufw route allow from %s to %s", p.Src, p.Dst)
	case owner == "docker":
		return "", fmt.Sprintf("accept the packets in chain DOCKER-USER: %s -I DOCKER-USER -s %s -d %s -j ACCEPT",
			cmp.Or(program, "iptables"), p.Src, p.Dst)
	case owner != "":
		return "", fmt.Sprintf("the chain belongs to %s: accept the packets there", owner)
	case p.Conn.State == packet.Invalid:
		return "", "the kernel does not know the connection of the packet; look for asymmetric routes"
	}
	var commands []string
	stateless := base.Bridged() || r.Base.Priority <= priorityConntrack
	for _, match := range w.matches(program != "", stateless) {
		if program != "" {
			match = fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", program, table, base.Chain, match)
		} else {
			match = fmt.Sprintf("nft insert rule %s %s %s %s accept",
				base.Table.Family, base.Table.Name, base.Chain, match)
		}
		commands = append(commands, w.prefix(n)+match)
	}
	return strings.Join(commands, "\n"), ""
}

// priorityConntrack is NF_IP_PRI_CONNTRACK: chains before it know no connections.
const priorityConntrack = -200

// matches returns the conditions for the packets of this flow and for its replies, for iptables or
// nft. Some chains do not know connections; in them, a reply is a packet from the port.
func (w *walk) matches(iptables, stateless bool) []string {
	p := w.packet
	match := nftMatch
	established := "ct state established,related"
	if iptables {
		match = iptablesMatch
		established = "-m conntrack --ctstate ESTABLISHED,RELATED"
	}
	switch {
	case w.reply && stateless:
		return []string{match(p.Src, p.Dst, p.Protocol, "sport", p.SrcPort)}
	case w.reply:
		return []string{established}
	case stateless:
		established = match(p.Dst, p.Src, p.Protocol, "sport", p.DstPort)
	}
	return []string{match(p.Src, p.Dst, p.Protocol, "dport", p.DstPort), established}
}

// nftMatch returns the condition of nft for packets with a port; side is "sport" or "dport".
func nftMatch(from, to netip.Addr, protocol uint8, side string, port uint16) string {
	family, icmp := "ip", "meta l4proto icmp"
	if to.Is6() {
		family, icmp = "ip6", "meta l4proto ipv6-icmp"
	}
	match := fmt.Sprintf("%[1]s saddr %[2]s %[1]s daddr %[3]s ", family, from, to)
	switch protocol {
	case unix.IPPROTO_TCP:
		return match + fmt.Sprintf("tcp %s %d", side, port)
	case unix.IPPROTO_UDP:
		return match + fmt.Sprintf("udp %s %d", side, port)
	}
	return match + icmp
}

// iptablesMatch is nftMatch for iptables.
func iptablesMatch(from, to netip.Addr, protocol uint8, side string, port uint16) string {
	match := fmt.Sprintf("-s %s -d %s ", from, to)
	switch protocol {
	case unix.IPPROTO_TCP:
		return match + fmt.Sprintf("-p tcp --%s %d", side, port)
	case unix.IPPROTO_UDP:
		return match + fmt.Sprintf("-p udp --%s %d", side, port)
	case unix.IPPROTO_ICMPV6:
		return match + "-p ipv6-icmp"
	}
	return match + "-p icmp"
}
