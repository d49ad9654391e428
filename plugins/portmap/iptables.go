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

// The backend iptables makes exactly the rules of the upstream plugin, so that each plugin can
// check and remove the rules of the other. They are in the nat tables: all containers share three
// chains, and each container has one chain of its own.
const (
	hostPorts = "CNI-HOSTPORT-DNAT"
	setMark   = "CNI-HOSTPORT-SETMARK"
	masqMark  = "CNI-HOSTPORT-MASQ"

	oldHostPorts = "CNI-HOSTPORT-SNAT" // of very old versions
)

// ownChain returns the chain of a container's attachments to a network. The interface is not part
// of its name.
func ownChain(network, container string) string { return hashed("CNI-DN-", network+container) }

// oldOwnChain returns the second chain that very old versions had.
func oldOwnChain(network, container string) string { return hashed("CNI-SN-", network+container) }

func hashed(prefix, s string) string {
	const length = 28 // of a chain's name
	sum := sha512.Sum512([]byte(s))
	return (prefix + hex.EncodeToString(sum[:]))[:length]
}

// forward is a port, or a range of ports, of the node that leads to a container.
type forward struct {
	protocol string // "tcp", "udp" or "sctp"
	// destination of connections; unspecified: all of its family; not valid: all
	hostIP        netip.Addr
	hostPort      uint16
	containerPort uint16
	count         uint16 // number of ports, starting at hostPort and containerPort; 0 means 1
}

// to reports whether the forward applies to a family.
func (f forward) to(family kernel.Family) bool {
	return !f.hostIP.IsValid() || familyOf(f.hostIP) == family
}

func familyOf(a netip.Addr) kernel.Family {
	if a.Is4() {
		return kernel.IPv4
	}
	return kernel.IPv6
}

// last returns the last port of a range that begins with first.
func (f forward) last(first uint16) uint16 { return first + max(f.count, 1) - 1 }

// ports returns the host ports as iptables writes them.
func (f forward) ports() string {
	if f.count <= 1 {
		return strconv.Itoa(int(f.hostPort))
	}
	return fmt.Sprintf("%d:%d", f.hostPort, f.last(f.hostPort))
}

// target returns the destination of the connections. A range keeps the order of its ports.
func (f forward) target(a netip.Addr) string {
	switch {
	case f.count <= 1:
		return netip.AddrPortFrom(a, f.containerPort).String()
	case f.hostPort == f.containerPort: // the port does not change
		return a.String()
	}
	return fmt.Sprintf("%s-%d/%d", netip.AddrPortFrom(a, f.containerPort), f.last(f.containerPort),
		f.hostPort)
}

// ipTables holds the parameters of the iptables rules of an attachment.
type ipTables struct {
	network, container string
	forwards           []forward
	// masquerade connections from the container's network and from the host itself
	snat       bool
	masqAll    bool   // masquerade all other connections as well
	markBit    int    // mark bit of masqueraded packets, 0 to 31
	markChain  string // existing chain that sets the mark, "" for the plugin's own
	conditions [2][]string
}

// edit returns the change that makes the rules for one address of the container, given with its
// prefix length.
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
			// Before the masquerading of the interface plugins.
			`-I POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j `+masqMark,
		)
	}
	return e
}

// rules returns the rules of this attachment for one address, as CHECK requires them.
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

// entries returns the rules that jump to the container's chain. Each family has all ports of a
// protocol, even ports with a hostIP of the other family.
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
			rules = append(rules, "-A "+hostPorts+" -p "+p+" -m comment --comment "+
				kernel.QuoteIPTables(entryComment(t.network, t.container))+
				" -m multiport --dports "+strings.Join(group, ",")+conditions+
				" -j "+ownChain(t.network, t.container))
		}
	}
	return rules
}

// grouped divides ports into groups that fit one rule: 15 ports; a range counts as two.
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

// own returns the rules of the container's chain for one forward, as iptables-save writes them.
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

// commentSuffix returns the end of the comments of all attachments of a container, unless they are
// truncated.
func commentSuffix(container string) string { return " id: " + strconv.Quote(container) }

// entryComment returns a comment with the network and the container, truncated to the limit of
// iptables.
func entryComment(network, container string) string {
	c := commentPrefix(network) + strconv.Quote(container)
	if len(c) > kernel.MaxIPTablesComment {
		const dots = "..."
		return c[:kernel.MaxIPTablesComment-len(dots)] + dots
	}
	return c
}

// leftovers returns the removals of all possible chains of a container's attachments to a network.
func leftovers(network, container string) []kernel.IPTablesRemoval {
	return []kernel.IPTablesRemoval{
		{In: hostPorts, Target: ownChain(network, container)},
		{In: oldHostPorts, Target: oldOwnChain(network, container)},
	}
}

// leftoversBut returns the removal of a network's chains, except the chains of the given
// containers. The comments of the rules that jump to a chain contain the network; the name of the
// chain does not.
func leftoversBut(network string, containers []string) kernel.IPTablesRemoval {
	valid := map[string]bool{}
	for _, c := range containers {
		valid[ownChain(network, c)] = true
	}
	return kernel.IPTablesRemoval{In: hostPorts, Match: func(r kernel.IPTablesRule) bool {
		return strings.HasPrefix(r.Comment, commentPrefix(network)) &&
			strings.HasPrefix(r.Target, "CNI-DN-") && !valid[r.Target]
	}}
}
