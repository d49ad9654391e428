package iptables

import "net/netip"

// Masquerade is the masquerading of one owner: a chain of the nat table, to which a rule of
// POSTROUTING jumps for each address.
type Masquerade struct {
	Chain   string
	Comment string // of each rule, at most [MaxComment] bytes of printable ASCII

	Exclude []netip.Prefix // further networks that see the original addresses
}

const hook = "POSTROUTING"

// Edit returns the edit that masquerades packets from addresses of one family to destinations
// outside their networks. Each prefix is an address with its prefix length.
func (m Masquerade) Edit(f Family, addrs []netip.Prefix) Edit {
	e := Edit{Chains: []string{m.Chain}}
	for _, a := range addrs {
		e.Common = append(e.Common, m.toNetwork(a.Masked()))
		for _, n := range m.Exclude {
			if n.Addr().Is4() == (f == IPv4) {
				e.Common = append(e.Common, m.toNetwork(n.Masked()))
			}
		}
		e.Common = append(e.Common, m.masquerade(f))
		e.Rules = append(e.Rules, m.jump(a.Addr()))
	}
	return e
}

// The following functions return rules as iptables-save writes them.

func (m Masquerade) toNetwork(n netip.Prefix) string {
	to := ""
	if n.Bits() > 0 {
		to = " -d " + n.String()
	}
	return m.rule(m.Chain, to, "ACCEPT")
}

func (m Masquerade) masquerade(f Family) string {
	multicast := [...]string{"224.0.0.0/4", "ff00::/8"}[f]
	return m.rule(m.Chain, " ! -d "+multicast, "MASQUERADE")
}

func (m Masquerade) jump(source netip.Addr) string {
	return m.rule(hook, " -s "+netip.PrefixFrom(source, source.BitLen()).String(), m.Chain)
}

func (m Masquerade) rule(chain, match, target string) string {
	return "-A " + chain + match + " -m comment --comment " + Quote(m.Comment) + " -j " + target
}
