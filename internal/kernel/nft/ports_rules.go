package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of publishing. What is for an address of the host comes to hostports, where conditions are, and from there to
// hostports_dnat.
func publishSkeleton() skeleton {
	s := skeleton{version: "host ports 1", table: table, sets: []*set{publishers()}}
	dnat := chain{Chain: &nftables.Chain{Table: table, Name: "hostports_dnat"}}
	conditions := chain{Chain: &nftables.Chain{Table: table, Name: "hostports"}}
	postrouting := chain{Chain: natChain("hostports_postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)}
	for _, p := range []ports{ports4(), ports6()} {
		s.sets = append(append(s.sets, p.maps()...), p.gates, p.hairpins)
		if p.nfproto == unix.NFPROTO_IPV6 {
			conditions.rules = append(conditions.rules, p.loopback())
		}
		conditions.rules = append(conditions.rules, p.conditions())
		for _, set := range p.maps() {
			dnat.rules = append(dnat.rules, p.dnat(set))
		}
		postrouting.rules = append(postrouting.rules, p.masqueradeHairpins())
	}
	conditions.rules = append(conditions.rules, []expr.Any{goTo(dnat.Name)})
	// The service NAT of others is at -100 and comes first: an address of a service can be one of the host
	// (CVE-2019-9946).
	priority := nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest + 5)
	s.chains = []chain{
		dnat, conditions,
		{natChain("hostports_prerouting", nftables.ChainHookPrerouting, priority), [][]expr.Any{local(conditions.Name)}},
		{natChain("hostports_output", nftables.ChainHookOutput, priority), [][]expr.Any{local(conditions.Name)}},
		postrouting,
		// With route_localnet, without which 127.0.0.1 cannot lead to a container, the kernel takes packets for 127.0.0.0/8
		// from anywhere (CVE-2020-8558). They must not appear outside a host: RFC 1122 section 3.2.1.3 (g).
		{&nftables.Chain{
			Table: table, Name: "hostports_loopback",
			Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		}, [][]expr.Any{martian(ip4().saddr), martian(ip4().daddr)}},
	}
	return s
}

func natChain(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}
}

func goTo(chain string) *expr.Verdict { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

// forward leads to where the maps are looked at.
func forward() expr.Any { return goTo("hostports_dnat") }

// local: fib daddr type local goto hostports
func local(chain string) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: unix.NFT_REG_1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
		goTo(chain),
	}
}

// martian: iifname != "lo" ip saddr 127.0.0.0/8 drop
func martian(addr expr.Payload) []expr.Any {
	addr.Len, addr.DestRegister = 1, unix.NFT_REG_1
	return append(append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: ifName("lo")},
	}, ip4().match()...),
		&addr,
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{127}},
		&expr.Verdict{Kind: expr.VerdictDrop})
}

// loopback: ip6 daddr ::1 return
//
// Nothing leads from there to a container (there is no route_localnet for IPv6): what listens on the host keeps it.
func (p ports) loopback() []expr.Any {
	addr := p.daddr
	addr.DestRegister = unix.NFT_REG_1
	return append(p.match(), &addr,
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: netip.IPv6Loopback().AsSlice()},
		&expr.Verdict{Kind: expr.VerdictReturn})
}

// conditions: ip daddr . meta l4proto . th dport vmap @gates4
func (p ports) conditions() []expr.Any {
	return append(p.load(true), &expr.Lookup{
		SourceRegister: unix.NFT_REG_1, SetName: p.gates.Name, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT,
	})
}

// dnat: dnat ip to meta l4proto . th dport map @dnat4
func (p ports) dnat(s *set) []expr.Any {
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(p.nfproto), RegAddrMin: unix.NFT_REG_1}
	if !s.Interval {
		nat.RegProtoMin = unix.NFT_REG32_00 + p.daddr.Len/wordLen
	}
	return append(p.load(s == p.singleAt || s == p.rangesAt),
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: s.Name, IsDestRegSet: true, DestRegister: unix.NFT_REG_1}, nat)
}

// load puts the key of a map into the registers.
func (p ports) load(at bool) []expr.Any {
	exprs, next := p.match(), uint32(unix.NFT_REG32_00)
	if at {
		addr := p.daddr
		addr.DestRegister = next
		exprs, next = append(exprs, &addr), next+addr.Len/wordLen
	}
	return append(exprs,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: next + 1})
}

// masqueradeHairpins: ct status dnat ip daddr . ip saddr @hairpin4 masquerade
func (p ports) masqueradeHairpins() []expr.Any {
	const dstNAT = 1 << 5 // IPS_DST_NAT
	to, from := p.daddr, p.saddr
	to.DestRegister, from.DestRegister = p.saddr.DestRegister, p.daddr.DestRegister
	return append(p.match(),
		&expr.Ct{Key: expr.CtKeySTATUS, Register: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: wordLen,
			Mask: binary.NativeEndian.AppendUint32(nil, dstNAT), Xor: make([]byte, wordLen),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, wordLen)},
		&to, &from,
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: p.hairpins.Name},
		&expr.Masq{})
}
