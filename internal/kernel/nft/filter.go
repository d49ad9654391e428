package nft

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Filtering is about what the host forwards: it keeps isolated interfaces apart, and after that accepts what comes from
// and returns to admitted addresses. An accept ends chain inet tenon forward and none of another table: it is for hosts that
// set the policy of this chain to drop, and its sets say whose an address is.
var Filtering = &Concern{name: "filter", skeleton: filterSkeleton}

// Admit returns the entries that accept what comes from addresses and what returns to them. An address has one owner: the
// last.
func Admit(addrs ...netip.Addr) (entries []Entry) {
	for _, a := range addrs {
		a = a.Unmap()
		key := a.AsSlice()
		entries = append(entries, newEntry(Filtering, admittedSet(protocolOf(a)), nftables.SetElement{Key: key}, len(key)))
	}
	return entries
}

// Admitted returns the address that an element of [Admit] is about.
func (h Held) Admitted() (a netip.Addr, ok bool) {
	for _, p := range []protocol{ip4(), ip6()} {
		if h.Set == admittedSet(p).Name {
			return address(h.Key), true
		}
	}
	return netip.Addr{}, false
}

func admittedSet(p protocol) *set {
	if p.nfproto == unix.NFPROTO_IPV4 {
		return addrSet("admitted4", nftables.TypeIPAddr)
	}
	return addrSet("admitted6", nftables.TypeIP6Addr)
}

func filterSkeleton() skeleton {
	s := isolationSkeleton()
	forward := &s.chains[0]
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, admittedSet(p))
		forward.rules = append(forward.rules, p.acceptFrom(), p.acceptReplies())
	}
	return s
}

// acceptFrom: ip saddr @admitted4 accept
func (p protocol) acceptFrom() []expr.Any {
	return append(p.match(), &p.saddr,
		&expr.Lookup{SourceRegister: p.saddr.DestRegister, SetName: admittedSet(p).Name},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// acceptReplies: ip daddr @admitted4 ct state established,related accept
func (p protocol) acceptReplies() []expr.Any {
	const states = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	reg := p.daddr.DestRegister
	return append(p.match(), &p.daddr,
		&expr.Lookup{SourceRegister: reg, SetName: admittedSet(p).Name},
		&expr.Ct{Key: expr.CtKeySTATE, Register: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(states), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// maxIsolated is how many interfaces can be isolated in a namespace; see maxAddrs for why there is a limit.
const maxIsolated = 1 << 12

func interfaceSet(t *nftables.Table, name string, size uint32) *set {
	return &set{
		Set:  &nftables.Set{Table: t, Name: name, KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian, Size: size},
		text: func(x nftables.SetElement) string { return nameOf(x.Key) },
	}
}

// isolated are the interfaces that are kept apart.
func isolated() *set {
	s := interfaceSet(table, "isolated", maxIsolated)
	s.users = members().Name
	return s
}

// together are pairs of interfaces that are not: an interface with itself, unless what is behind it is kept apart too.
func together() *set {
	return &set{
		Set: &nftables.Set{
			Table: table, Name: "together", KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIFName),
			Concatenation: true, Size: maxIsolated,
		},
		users: members().Name, policy: true,
		text: func(x nftables.SetElement) string {
			return fmt.Sprintf("%s with %s", nameOf(x.Key), nameOf(x.Key[unix.IFNAMSIZ:]))
		},
	}
}

// members are whom the isolation is for. The end of a key is the owner's, so that each has one.
func members() *set {
	return &set{
		Set: &nftables.Set{
			Table: table, Name: "members", Concatenation: true, Size: maxPorts,
			KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIFName, nftables.TypeIP6Addr),
		},
		text: func(x nftables.SetElement) string { return nameOf(x.Key) },
	}
}

// isolationSkeleton has one rule: iifname @isolated oifname @isolated iifname . oifname != @together drop
func isolationSkeleton() skeleton {
	return skeleton{
		version: "filter 1",
		table:   table,
		sets:    []*set{isolated(), together(), members()},
		chains: []chain{{&nftables.Chain{
			Table:    table,
			Name:     "forward",
			Type:     nftables.ChainTypeFilter,
			Hooknum:  nftables.ChainHookForward,
			Priority: nftables.ChainPriorityFilter,
		}, [][]expr.Any{{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1},
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: isolated().Name},
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_2}, // right behind the other
			&expr.Lookup{SourceRegister: unix.NFT_REG_2, SetName: isolated().Name},
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: together().Name, Invert: true},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}}}},
	}
}
