package nft

import "github.com/tenon-cni/tenon/internal/nft/nftmsg"

// Dropping drops packets that masquerading would let out untranslated: they neither belong to a
// connection that the kernel knows nor begin one. The rule set exists only where it was requested,
// because every forwarded packet passes it.
var Dropping = &RuleSet{name: "drop invalid", skeleton: droppingSkeleton}

func droppingSkeleton() skeleton {
	s := skeleton{version: "dropinvalid 1", table: table}
	drop := forwardChain(table, "dropinvalid", nftmsg.PriorityFilter)
	for _, p := range families() {
		s.sets = append(s.sets, p.strict, p.lenient)
		// ct state invalid ip saddr @valid4 ip saddr . ip daddr != @anystate4 drop
		drop.add(append(ctState(stateInvalid), p.rule(p.saddr, p.strict.has(p.saddr.Register),
			p.daddr, p.lenient.lacks(), verdict(nftmsg.Drop))...))
	}
	s.chains = []chain{drop}
	return s
}
