package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Dropping keeps in what masquerading lets out as it is: packets that belong to no connection the kernel knows, nor begin
// one, are not translated. It is made where it is first asked for, as every packet that is forwarded passes it.
var Dropping = &RuleSet{name: "drop invalid", skeleton: droppingSkeleton}

// The bits of states of a connection (NF_CT_STATE_INVALID_BIT, NF_CT_STATE_BIT).
const stateInvalid, stateEstablished, stateRelated = 1, 2, 4

func droppingSkeleton() skeleton {
	s := skeleton{version: "dropinvalid 1", table: table}
	forward := chain{Chain: nftmsg.Chain{
		Table:    table,
		Name:     "dropinvalid",
		Type:     nftmsg.ChainFilter,
		Hook:     unix.NF_INET_FORWARD,
		Priority: nftmsg.PriorityFilter,
	}}
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, p.strict, p.lenient)
		forward.rules = append(forward.rules, p.dropInvalid())
	}
	s.chains = []chain{forward}
	return s
}

// dropInvalid: ct state invalid ip saddr @valid4 ip saddr . ip daddr != @anystate4 drop
func (p protocol) dropInvalid() []nftmsg.Expr {
	invalid := []nftmsg.Expr{
		nftmsg.Ct{Key: unix.NFT_CT_STATE, Register: unix.NFT_REG_1},
		nftmsg.Mask{Register: unix.NFT_REG_1, Bits: binary.NativeEndian.AppendUint32(nil, stateInvalid)},
		nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
	}
	return append(append(invalid, p.match()...), p.saddr,
		nftmsg.Lookup{Set: p.strict.Name, Register: p.saddr.Register},
		p.daddr,
		nftmsg.Lookup{Set: p.lenient.Name, Register: p.saddr.Register, Not: true},
		nftmsg.Verdict{Code: nftmsg.Drop})
}
