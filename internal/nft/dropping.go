package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Dropping drops packets that masquerading would let out untranslated: they neither belong to a
// connection that the kernel knows nor begin one. The rule set exists only where it was requested,
// because every forwarded packet passes it.
var Dropping = &RuleSet{name: "drop invalid", skeleton: droppingSkeleton}

// The bits of states of a connection (NF_CT_STATE_INVALID_BIT, NF_CT_STATE_BIT).
const stateInvalid, stateEstablished, stateRelated = 1, 2, 4

func droppingSkeleton() skeleton {
	s := skeleton{version: "dropinvalid 1", table: table}
	drop := forwardChain(table, "dropinvalid", nftmsg.PriorityFilter)
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, p.strict, p.lenient)
		drop.rules = append(drop.rules, p.dropInvalid())
	}
	s.chains = []chain{drop}
	return s
}

// forwardChain returns a base chain for packets that the host forwards.
func forwardChain(t nftmsg.Table, name string, priority int32) chain {
	return chain{Chain: nftmsg.Chain{
		Table: t, Name: name, Type: nftmsg.ChainFilter, Hook: unix.NF_INET_FORWARD, Priority: priority,
	}}
}

// dropInvalid: ct state invalid ip saddr @valid4 ip saddr . ip daddr != @anystate4 drop
func (p protocol) dropInvalid() []nftmsg.Expr {
	return append(append(ctState(stateInvalid), p.match()...), p.saddr,
		nftmsg.Lookup{Set: p.strict.Name, Register: p.saddr.Register},
		p.daddr,
		nftmsg.Lookup{Set: p.lenient.Name, Register: p.saddr.Register, Not: true},
		nftmsg.Verdict{Code: nftmsg.Drop})
}

// ctState matches packets of connections in one of the states.
func ctState(states uint32) []nftmsg.Expr {
	return []nftmsg.Expr{
		nftmsg.Ct{Key: unix.NFT_CT_STATE, Register: unix.NFT_REG_1},
		nftmsg.Mask{Register: unix.NFT_REG_1, Bits: binary.NativeEndian.AppendUint32(nil, states)},
		nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
	}
}
