package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Dropping keeps in what masquerading lets out as it is: packets that belong to no connection the kernel knows, nor begin
// one, are not translated. It is made where it is first asked for, as every packet that is forwarded passes it.
var Dropping = &Concern{name: "drop invalid", skeleton: droppingSkeleton}

// stateInvalid is the bit of that state of a connection (NF_CT_STATE_INVALID_BIT).
const stateInvalid = 1

func droppingSkeleton() skeleton {
	s := skeleton{version: "dropinvalid 1", table: table}
	forward := chain{Chain: &nftables.Chain{
		Table:    table,
		Name:     "dropinvalid",
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	}}
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, p.strict, p.lenient)
		forward.rules = append(forward.rules, p.dropInvalid())
	}
	s.chains = []chain{forward}
	return s
}

// dropInvalid: ct state invalid ip saddr @valid4 ip saddr . ip daddr != @anystate4 drop
func (p protocol) dropInvalid() []expr.Any {
	invalid := []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(stateInvalid), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
	}
	return append(append(invalid, p.match()...), &p.saddr,
		&expr.Lookup{SourceRegister: p.saddr.DestRegister, SetName: p.strict.Name},
		&p.daddr,
		&expr.Lookup{SourceRegister: p.saddr.DestRegister, SetName: p.lenient.Name, Invert: true},
		&expr.Verdict{Kind: expr.VerdictDrop})
}
