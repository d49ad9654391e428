package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// publishSkeleton has chains that send packets for an address of the host to hostports, which looks
// up conditions, and from there to hostports_dnat.
func publishSkeleton() skeleton {
	s := skeleton{version: "host ports 3", table: table, sets: []*set{publishers()}}
	dnat := chain{Chain: nftmsg.Chain{Table: table, Name: "hostports_dnat"}}
	conditions := chain{Chain: nftmsg.Chain{Table: table, Name: "hostports"}}
	postrouting := chain{Chain: natChain("hostports_postrouting", unix.NF_INET_POST_ROUTING,
		nftmsg.PrioritySNAT)}
	for _, p := range []ports{ports4(), ports6()} {
		s.sets = append(append(s.sets, p.maps...), p.gates, p.hairpins)
		if p.nfproto == unix.NFPROTO_IPV6 {
			// ip6 daddr ::1 return
			//
			// IPv6 has no route_localnet, so no container is reachable from ::1: services on the
			// host keep it.
			conditions.add(p.rule(into(unix.NFT_REG_1, p.daddr),
				equals(netip.IPv6Loopback().AsSlice()), verdict(unix.NFT_RETURN)))
		}
		// ip daddr . meta l4proto . th dport vmap @gates4
		conditions.add(append(p.load(true),
			nftmsg.Map{Set: p.gates.Name, Register: unix.NFT_REG_1, Into: unix.NFT_REG_VERDICT}))
		for _, set := range p.maps {
			dnat.add(p.dnat(set))
		}
		postrouting.add(p.masqueradeHairpins())
	}
	conditions.add([]nftmsg.Expr{goTo(dnat.Name)})
	// fib daddr type local goto hostports
	local := [][]nftmsg.Expr{{
		nftmsg.Fib{Flags: unix.NFTA_FIB_F_DADDR, Result: unix.NFT_FIB_RESULT_ADDRTYPE,
			Register: unix.NFT_REG_1},
		equals(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)), goTo(conditions.Name),
	}}
	// The service NAT of other programs is at priority -100 and comes first: a service address can
	// also be an address of the host (CVE-2019-9946).
	const priority = nftmsg.PriorityDNAT + 5
	s.chains = []chain{
		dnat, conditions,
		{natChain("hostports_prerouting", unix.NF_INET_PRE_ROUTING, priority), local},
		{natChain("hostports_output", unix.NF_INET_LOCAL_OUT, priority), local},
		postrouting,
		// With route_localnet, which forwarding from 127.0.0.1 needs, the kernel accepts packets
		// for 127.0.0.0/8 from any interface (CVE-2020-8558). They must not appear outside a host:
		// RFC 1122 section 3.2.1.3 (g).
		{nftmsg.Chain{
			Table: table, Name: "hostports_loopback",
			Type: nftmsg.ChainFilter, Hook: unix.NF_INET_PRE_ROUTING, Priority: nftmsg.PriorityRaw,
		}, [][]nftmsg.Expr{martian(ip4().saddr), martian(ip4().daddr)}},
	}
	return s
}

// martian returns the rule: iifname != "lo" ip saddr 127.0.0.0/8 drop
func martian(addr nftmsg.Payload) []nftmsg.Expr {
	addr.Len = 1
	rule := ip4().rule(into(unix.NFT_REG_1, addr), equals([]byte{127}), verdict(nftmsg.Drop))
	return append([]nftmsg.Expr{
		meta(unix.NFT_META_IIFNAME),
		nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: unix.NFT_REG_1, Data: ifName("lo")},
	}, rule...)
}

// translated returns the connection label that the DNAT rules set and the masquerading rules match.
// Connections translated by other programs, such as kube-proxy, lack it. The kernel only ever adds
// labels, so no other user loses one; a mark would be shared with routing, and has no free bit.
func translated() []byte {
	const label, size = 29, 16
	// Labels are bits of an array of long, in which the order of bytes matters.
	return append(binary.NativeEndian.AppendUint64(nil, 1<<label), make([]byte, size-8)...)
}

// dnat returns the rule: ct label set 29 dnat ip to meta l4proto . th dport map @dnat4
//
// The kernel looks up the target first; the rule ends there if the map has none.
func (p ports) dnat(s *set) []nftmsg.Expr {
	nat := nftmsg.NAT{Type: unix.NFT_NAT_DNAT, Family: uint32(p.nfproto), Addr: unix.NFT_REG_1}
	if !s.Interval {
		nat.Port = unix.NFT_REG32_00 + p.daddr.Len/wordLen
	}
	// The registers after the target, which takes at most 5 words.
	const behind = unix.NFT_REG_3
	return append(p.load(len(s.Key) == 3),
		nftmsg.Map{Set: s.Name, Register: unix.NFT_REG_1, Into: unix.NFT_REG_1},
		nftmsg.Immediate{Register: behind, Value: translated()},
		nftmsg.SetCt{Key: unix.NFT_CT_LABELS, Register: behind},
		nat)
}

// load puts the key of a map into the registers.
func (p ports) load(at bool) []nftmsg.Expr {
	exprs, next := p.rule(), uint32(unix.NFT_REG32_00)
	if at {
		exprs, next = append(exprs, into(next, p.daddr)), next+p.daddr.Len/wordLen
	}
	return append(exprs,
		nftmsg.Meta{Key: unix.NFT_META_L4PROTO, Register: next},
		nftmsg.Payload{Base: unix.NFT_PAYLOAD_TRANSPORT_HEADER, Offset: 2, Len: 2,
			Register: next + 1})
}

// masqueradeHairpins returns the rule: ct label 29 ip daddr . ip saddr @hairpin4 masquerade
func (p ports) masqueradeHairpins() []nftmsg.Expr {
	labels := nftmsg.Ct{Key: unix.NFT_CT_LABELS, Register: unix.NFT_REG_1}
	return append(append(p.rule(labels), anyBit(translated())...),
		into(p.saddr.Register, p.daddr), into(p.daddr.Register, p.saddr),
		p.hairpins.has(unix.NFT_REG_1), nftmsg.Masq{})
}
