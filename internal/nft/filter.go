package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Filtering is about what the host forwards: it keeps isolated interfaces apart, and after that accepts what comes from
// and returns to admitted addresses. An accept ends chain inet tenon forward and none of another table: it is for hosts that
// set the policy of this chain to drop, and its sets say whose an address is.
var Filtering = &RuleSet{name: "filter", skeleton: filterSkeleton}

// Admit returns the entries that accept what comes from addresses and what returns to them. An address has one owner: the
// last.
func Admit(addrs ...netip.Addr) (entries []Element) {
	for _, a := range addrs {
		a = a.Unmap()
		key := a.AsSlice()
		entries = append(entries, newElement(Filtering, admittedSet(protocolOf(a)), nftmsg.Element{Key: key}, len(key)))
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
		return addrSet("admitted4", nftmsg.TypeIPv4Addr)
	}
	return addrSet("admitted6", nftmsg.TypeIPv6Addr)
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
func (p protocol) acceptFrom() []nftmsg.Expr {
	return append(p.match(), p.saddr,
		nftmsg.Lookup{Set: admittedSet(p).Name, Register: p.saddr.Register},
		nftmsg.Verdict{Code: nftmsg.Accept})
}

// acceptReplies: ip daddr @admitted4 ct state established,related accept
func (p protocol) acceptReplies() []nftmsg.Expr {
	const states = stateEstablished | stateRelated
	reg := p.daddr.Register
	return append(p.match(), p.daddr,
		nftmsg.Lookup{Set: admittedSet(p).Name, Register: reg},
		nftmsg.Ct{Key: unix.NFT_CT_STATE, Register: unix.NFT_REG_1},
		nftmsg.Mask{Register: unix.NFT_REG_1, Bits: binary.NativeEndian.AppendUint32(nil, states)},
		nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
		nftmsg.Verdict{Code: nftmsg.Accept})
}

// maxIsolated is how many interfaces can be isolated in a namespace; see maxAddrs for why there is a limit.
const maxIsolated = 1 << 12

func interfaceSet(t nftmsg.Table, name string, size uint32) *set {
	return &set{
		Set:  nftmsg.Set{Table: t, Name: name, Key: []nftmsg.Type{nftmsg.TypeIfName}, Size: size},
		text: func(x nftmsg.Element) string { return nameOf(x.Key) },
	}
}

// isolated are the interfaces that are kept apart.
func isolated() *set {
	s := interfaceSet(table, "isolated", maxIsolated)
	s.references = members().Name
	return s
}

// together are pairs of interfaces that are not: an interface with itself, unless what is behind it is kept apart too.
func together() *set {
	return &set{
		Set: nftmsg.Set{
			Table: table, Name: "together", Key: []nftmsg.Type{nftmsg.TypeIfName, nftmsg.TypeIfName},
			Size: maxIsolated,
		},
		references: members().Name, policy: true,
		text: func(x nftmsg.Element) string {
			return fmt.Sprintf("%s with %s", nameOf(x.Key), nameOf(x.Key[unix.IFNAMSIZ:]))
		},
	}
}

// members are whom the isolation is for. The end of a key is the owner's, so that each has one.
func members() *set {
	return &set{
		Set: nftmsg.Set{
			Table: table, Name: "members", Size: maxPorts,
			Key: []nftmsg.Type{nftmsg.TypeIfName, nftmsg.TypeIfName, nftmsg.TypeIPv6Addr},
		},
		text: func(x nftmsg.Element) string { return nameOf(x.Key) },
	}
}

// isolationSkeleton has one rule: iifname @isolated oifname @isolated iifname . oifname != @together drop
func isolationSkeleton() skeleton {
	return skeleton{
		version: "filter 1",
		table:   table,
		sets:    []*set{isolated(), together(), members()},
		chains: []chain{{nftmsg.Chain{
			Table:    table,
			Name:     "forward",
			Type:     nftmsg.ChainFilter,
			Hook:     unix.NF_INET_FORWARD,
			Priority: nftmsg.PriorityFilter,
		}, [][]nftmsg.Expr{{
			nftmsg.Meta{Key: unix.NFT_META_IIFNAME, Register: unix.NFT_REG_1},
			nftmsg.Lookup{Set: isolated().Name, Register: unix.NFT_REG_1},
			nftmsg.Meta{Key: unix.NFT_META_OIFNAME, Register: unix.NFT_REG_2}, // right behind the other
			nftmsg.Lookup{Set: isolated().Name, Register: unix.NFT_REG_2},
			nftmsg.Lookup{Set: together().Name, Register: unix.NFT_REG_1, Not: true},
			nftmsg.Verdict{Code: nftmsg.Drop},
		}}}},
	}
}
