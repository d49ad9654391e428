package portmap

import (
	"cmp"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// The backend iptables makes the rules of the reference plugin, to the letter, so that either can check and remove what the
// other has made. They are in the nat tables, where three chains are shared by all containers and each has one of its own.
const (
	hostPorts = "CNI-HOSTPORT-DNAT"
	setMark   = "CNI-HOSTPORT-SETMARK"
	masqMark  = "CNI-HOSTPORT-MASQ"

	oldHostPorts = "CNI-HOSTPORT-SNAT" // of very old versions
)

// ownChain is the chain of a container's attachments to a network: the interface is no part of its name.
func ownChain(network, container string) string { return hashed("CNI-DN-", network+container) }

// oldOwnChain is the one that very old versions had besides.
func oldOwnChain(network, container string) string { return hashed("CNI-SN-", network+container) }

func hashed(prefix, s string) string {
	const length = 28 // of a chain's name
	sum := sha512.Sum512([]byte(s))
	return (prefix + hex.EncodeToString(sum[:]))[:length]
}

// forward is a port, or a range of ports, of the host that leads to a container.
type forward struct {
	protocol      string     // "tcp", "udp" or "sctp"
	hostIP        netip.Addr // only connections to this address; unspecified: to all of its family; not valid: to all
	hostPort      uint16
	containerPort uint16
	count         uint16 // of ports from hostPort and from containerPort on; 0 is 1
}

// to reports whether a family has the forward.
func (f forward) to(family kernel.Family) bool {
	return !f.hostIP.IsValid() || familyOf(f.hostIP) == family
}

func familyOf(a netip.Addr) kernel.Family {
	if a.Is4() {
		return kernel.IPv4
	}
	return kernel.IPv6
}

// last is the last port of a range that begins with first.
func (f forward) last(first uint16) uint16 { return first + max(f.count, 1) - 1 }

// ports are the ports of the host as iptables writes them.
func (f forward) ports() string {
	if f.count <= 1 {
		return strconv.Itoa(int(f.hostPort))
	}
	return fmt.Sprintf("%d:%d", f.hostPort, f.last(f.hostPort))
}

// target is where the connections go to. A range keeps the order of its ports.
func (f forward) target(a netip.Addr) string {
	switch {
	case f.count <= 1:
		return netip.AddrPortFrom(a, f.containerPort).String()
	case f.hostPort == f.containerPort: // the port stays as it is
		return a.String()
	}
	return fmt.Sprintf("%s-%d/%d", netip.AddrPortFrom(a, f.containerPort), f.last(f.containerPort), f.hostPort)
}

// ipTables is what iptables does for an attachment.
type ipTables struct {
	network, container string
	forwards           []forward
	snat               bool   // masquerade what has to come back: from the container's network and from the host itself
	masqAll            bool   // and from everywhere else
	markBit            int    // of what is masqueraded, 0 to 31
	markChain          string // an existing chain that marks it instead, "" for ours
	conditions         [2][]string
}

// edit is what makes the rules for one address of the container, given with its prefix length.
func (t ipTables) edit(address netip.Prefix) kernel.IPTablesEdit {
	chain := ownChain(t.network, t.container)
	e := kernel.IPTablesEdit{
		Chains: []string{hostPorts},
		Common: []string{
			"-A PREROUTING -m addrtype --dst-type LOCAL -j " + hostPorts,
			"-A OUTPUT -m addrtype --dst-type LOCAL -j " + hostPorts,
		},
		Own:   []string{chain},
		Rules: t.rules(address),
	}
	if t.snat && t.markChain == "" {
		mark := fmt.Sprintf("0x%x/0x%[1]x", uint32(1)<<t.markBit)
		e.Chains = append(e.Chains, setMark, masqMark)
		e.Common = append(e.Common,
			"-A "+setMark+` -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark `+mark,
			"-A "+masqMark+" -m mark --mark "+mark+" -j MASQUERADE",
			// Before the masquerading of the plugins that make interfaces.
			`-I POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j `+masqMark,
		)
	}
	return e
}

// rules are the rules of this attachment for one address: what CHECK looks for.
func (t ipTables) rules(address netip.Prefix) []string {
	family := familyOf(address.Addr())
	rules := t.entries(family)
	for _, f := range t.forwards {
		if f.to(family) {
			rules = append(rules, t.own(f, address)...)
		}
	}
	return rules
}

// entries are the rules that lead to the container's chain. All ports of a protocol are in each family, also those whose
// hostIP is of the other.
func (t ipTables) entries(family kernel.Family) (rules []string) {
	ports := map[string][]string{}
	var protocols []string
	for _, f := range t.forwards {
		if !slices.Contains(protocols, f.protocol) {
			protocols = append(protocols, f.protocol)
		}
		ports[f.protocol] = append(ports[f.protocol], f.ports())
	}
	slices.Sort(protocols)
	var conditions string
	for _, word := range t.conditions[family] {
		conditions += " " + kernel.QuoteIPTables(word)
	}
	for _, p := range protocols {
		for _, group := range grouped(ports[p]) {
			rules = append(rules, "-A "+hostPorts+" -p "+p+" -m comment --comment "+kernel.QuoteIPTables(entryComment(t.network, t.container))+
				" -m multiport --dports "+strings.Join(group, ",")+conditions+" -j "+ownChain(t.network, t.container))
		}
	}
	return rules
}

// grouped divides ports into groups of as many as one rule takes: 15, where a range counts as two.
func grouped(ports []string) (groups [][]string) {
	room := 0
	for _, p := range ports {
		need := 1 + strings.Count(p, ":")
		if need > room {
			groups = append(groups, nil)
			room = 15
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], p)
		room -= need
	}
	return groups
}

// own are the rules of the container's chain for one forward, as iptables-save writes them.
func (t ipTables) own(f forward, address netip.Prefix) (rules []string) {
	to := ""
	if f.hostIP.IsValid() && !f.hostIP.IsUnspecified() {
		to = " -d " + netip.PrefixFrom(f.hostIP, f.hostIP.BitLen()).String()
	}
	rule := func(from, target string) {
		rules = append(rules, "-A "+ownChain(t.network, t.container)+from+to+
			" -p "+f.protocol+" -m "+f.protocol+" --dport "+f.ports()+" -j "+target)
	}
	mark := cmp.Or(t.markChain, setMark)
	switch {
	case !t.snat:
	case t.masqAll || address.Bits() == 0:
		rule("", mark)
	default:
		rule(" -s "+address.Masked().String(), mark)
	}
	if t.snat && !t.masqAll && address.Addr().Is4() {
		rule(" -s 127.0.0.1/32", mark)
	}
	rule("", "DNAT --to-destination "+f.target(address.Addr()))
	return rules
}

func commentPrefix(network string) string { return fmt.Sprintf("dnat name: %q id: ", network) }

// commentSuffix is how the comments of all attachments of a container end, unless they are cut.
func commentSuffix(container string) string { return " id: " + strconv.Quote(container) }

// entryComment names the attachment. A long one is cut.
func entryComment(network, container string) string {
	c := commentPrefix(network) + strconv.Quote(container)
	if len(c) > kernel.MaxIPTablesComment {
		const dots = "..."
		return c[:kernel.MaxIPTablesComment-len(dots)] + dots
	}
	return c
}

// leftovers is what there can be of a container's attachments to a network.
func leftovers(network, container string) []kernel.IPTablesRemoval {
	return []kernel.IPTablesRemoval{
		{In: hostPorts, Target: ownChain(network, container)},
		{In: oldHostPorts, Target: oldOwnChain(network, container)},
	}
}

// leftoversBut is what there can be of a network's attachments, but for those of these containers. A chain's name does not
// tell the network; the comments of the rules that lead to it do.
func leftoversBut(network string, containers []string) kernel.IPTablesRemoval {
	valid := map[string]bool{}
	for _, c := range containers {
		valid[ownChain(network, c)] = true
	}
	return kernel.IPTablesRemoval{In: hostPorts, Match: func(r kernel.IPTablesRule) bool {
		return strings.HasPrefix(r.Comment, commentPrefix(network)) && strings.HasPrefix(r.Target, "CNI-DN-") && !valid[r.Target]
	}}
}
