package firewall

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// The backend iptables makes exactly the rules of the upstream plugin in the filter tables, so that
// each plugin can check and remove the rules of the other. The rules contain addresses and bridges,
// but no owner: Remove must determine it first.
const (
	forwardChain = "CNI-FORWARD"

	stage1 = "CNI-ISOLATION-STAGE-1" // matches packets from a bridge
	stage2 = "CNI-ISOLATION-STAGE-2" // drops packets to another bridge
)

// admission returns the rules that admit addresses of one family: replies to them, and all packets
// from them. admin is a chain of the administrator, which comes first; the plugin does not change
// its rules.
func admission(admin string, addrs []netip.Addr) kernel.IPTablesEdit {
	return kernel.IPTablesEdit{
		Chains: []string{forwardChain, admin},
		Common: []string{
			`-I FORWARD -m comment --comment "CNI firewall plugin rules" -j ` + forwardChain,
			"-I " + forwardChain +
				` -m comment --comment "CNI firewall plugin admin overrides" -j ` + admin,
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

// admitted returns the removal of the rules for addresses. Chains and jumps stay, as with the
// upstream plugin.
func admitted(addr func(netip.Addr) bool) kernel.IPTablesRemoval {
	return kernel.IPTablesRemoval{In: forwardChain, Match: func(r kernel.IPTablesRule) bool {
		replies := kernel.IPTablesRule{
			Chain: forwardChain, Target: "ACCEPT", Dest: r.Dest, Others: 1,
		}
		all := kernel.IPTablesRule{Chain: forwardChain, Target: "ACCEPT", Source: r.Source}
		return r == replies && addr(r.Dest) || r == all && addr(r.Source)
	}}
}

// ingressPolicy limits the sources that reach a bridge's containers.
type ingressPolicy string

const (
	policyOpen       ingressPolicy = "open"        // all sources
	policySameBridge ingressPolicy = "same-bridge" // not other bridges with a policy
	policyIsolated   ingressPolicy = "isolated"    // nor containers of the same bridge
)

const isolationComment = ` -m comment --comment "CNI firewall plugin rules (ingressPolicy: `

// isolation returns the rules of a policy for a bridge. All containers of the bridge share them,
// and they stay as long as an attachment has a policy. Rules of an earlier policy are removed.
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
		Drop: func(r kernel.IPTablesRule) bool {
			return r.Chain == stage1 && r.In == bridge && ofIsolation(r)
		},
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

// isolated returns the removals of a bridge's isolation rules, in this order. The removal for the
// last bridge deletes the chains.
func isolated(bridge string) []kernel.IPTablesRemoval {
	plain := func(r kernel.IPTablesRule) bool {
		return r.Target == "RETURN" && r.In == "" && r.Out == "" && r.Others == 0 &&
			!r.Source.IsValid() && !r.Dest.IsValid()
	}
	return []kernel.IPTablesRemoval{
		{In: stage1, Match: func(r kernel.IPTablesRule) bool {
			return r.In == bridge && ofIsolation(r)
		}},
		{In: stage2, Match: func(r kernel.IPTablesRule) bool {
			return r.Out == bridge && ofIsolation(r)
		}},
		{In: "FORWARD", Target: stage1, Also: []string{stage2},
			Unless: func(r kernel.IPTablesRule) bool { return !plain(r) }},
	}
}
