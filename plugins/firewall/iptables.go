package firewall

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// The backend iptables makes the rules of the reference plugin, to the letter, so that either can check and remove what the
// other has made. They are in the filter tables. They name addresses and bridges, not whom they are for: that has to be
// known before one is removed.
const (
	forwardChain = "CNI-FORWARD"

	stage1 = "CNI-ISOLATION-STAGE-1" // tells what comes from a bridge
	stage2 = "CNI-ISOLATION-STAGE-2" // drops what goes to another
)

// admission is what lets addresses of one family through: replies to them, and all they send. admin is a chain of the
// user, which comes first and whose rules are nobody's business here.
func admission(admin string, addrs []netip.Addr) kernel.IPTablesEdit {
	return kernel.IPTablesEdit{
		Chains: []string{forwardChain, admin},
		Common: []string{
			`-I FORWARD -m comment --comment "CNI firewall plugin rules" -j ` + forwardChain,
			"-I " + forwardChain + ` -m comment --comment "CNI firewall plugin admin overrides" -j ` + admin,
		},
		Rules: admitting(addrs),
	}
}

func admitting(addrs []netip.Addr) (rules []string) {
	for _, a := range addrs {
		host := netip.PrefixFrom(a, a.BitLen()).String()
		rules = append(rules,
			"-A "+forwardChain+" -d "+host+" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"-A "+forwardChain+" -s "+host+" -j ACCEPT")
	}
	return rules
}

// admitted is what lets addresses through, for removal. Chains and jumps stay, as the reference plugin leaves them.
func admitted(addr func(netip.Addr) bool) kernel.IPTablesRemoval {
	return kernel.IPTablesRemoval{In: forwardChain, Match: func(r kernel.IPTablesRule) bool {
		replies := kernel.IPTablesRule{Chain: forwardChain, Target: "ACCEPT", Dest: r.Dest, Others: 1}
		all := kernel.IPTablesRule{Chain: forwardChain, Target: "ACCEPT", Source: r.Source}
		return r == replies && addr(r.Dest) || r == all && addr(r.Source)
	}}
}

// ingressPolicy says from where a bridge's containers can be reached.
type ingressPolicy string

const (
	policyOpen       ingressPolicy = "open"        // from everywhere
	policySameBridge ingressPolicy = "same-bridge" // not from other bridges with a policy
	policyIsolated   ingressPolicy = "isolated"    // nor from each other
)

const isolationComment = ` -m comment --comment "CNI firewall plugin rules (ingressPolicy: `

// isolation is what a policy demands of a bridge. All containers on it share the rules, and none of them is taken back as
// long as others have a policy. What another policy has left goes.
func isolation(bridge string, p ingressPolicy) kernel.IPTablesEdit {
	const both = isolationComment + string(policySameBridge+"|"+policyIsolated) + `)" -j `
	one := isolationComment + string(p) + `)" -j `
	br := kernel.QuoteIPTables(bridge)
	e := kernel.IPTablesEdit{
		Chains: []string{stage1, stage2},
		Common: []string{
			"-I FORWARD" + both + stage1, // before forwardChain
			"-I " + stage1 + " -i " + br + " ! -o " + br + one + stage2,
		},
		Drop: func(r kernel.IPTablesRule) bool { return r.Chain == stage1 && r.In == bridge && ofIsolation(r) },
	}
	if p == policyIsolated {
		e.Common = append(e.Common, "-I "+stage1+" -i "+br+" -o "+br+one+"DROP")
	}
	e.Common = append(e.Common,
		"-A "+stage1+both+"RETURN",
		"-I "+stage2+" -o "+br+both+"DROP",
		"-A "+stage2+both+"RETURN",
	)
	return e
}

func ofIsolation(r kernel.IPTablesRule) bool { return r.Target == stage2 || r.Target == "DROP" }

// isolated is what the policies demand of a bridge, for removal with its last user, in this order. With the last bridge go
// the chains.
func isolated(bridge string) []kernel.IPTablesRemoval {
	plain := func(r kernel.IPTablesRule) bool {
		return r.Target == "RETURN" && r.In == "" && r.Out == "" && r.Others == 0 && !r.Source.IsValid() && !r.Dest.IsValid()
	}
	return []kernel.IPTablesRemoval{
		{In: stage1, Match: func(r kernel.IPTablesRule) bool { return r.In == bridge && ofIsolation(r) }},
		{In: stage2, Match: func(r kernel.IPTablesRule) bool { return r.Out == bridge && ofIsolation(r) }},
		{In: "FORWARD", Target: stage1, Also: []string{stage2}, Unless: func(r kernel.IPTablesRule) bool { return !plain(r) }},
	}
}
