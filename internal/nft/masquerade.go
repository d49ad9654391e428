package nft

import (
	"fmt"
	mathbits "math/bits"
	"net"
	"net/netip"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Masquerading gives what containers send beyond their networks an address of the host as its source.
var Masquerading = &RuleSet{name: "masquerade", skeleton: masqueradeSkeleton}

// Masquerade is [Masq.Entries] of the zero Masq.
func Masquerade(addrs ...netip.Prefix) ([]Element, error) { return Masq{}.Entries(addrs...) }

// Masq says how addresses are masqueraded.
type Masq struct {
	Exclude    []netip.Prefix // networks that see the container's own address, beside its own network
	SameSubnet bool           // its own network is no exception
	// ToSource is what others see instead of an address of the interface that packets leave by, one for each family.
	ToSource    []netip.Addr
	DropInvalid bool // drop what cannot be masqueraded because the kernel does not know its connection
}

// Entries returns the entries that masquerade what addresses send beyond their networks and not to a multicast group: each
// prefix is the address of a container with its prefix length.
func (m Masq) Entries(addrs ...netip.Prefix) ([]Element, error) {
	addrs, err := distinct(addrs)
	var entries []Element
	for _, a := range addrs {
		p, addr := protocolOf(a.Addr()), a.Addr().AsSlice()
		entries = append(entries, newElement(Masquerading, p.addrs, nftmsg.Element{Key: addr}, len(addr)))
		for _, to := range m.ToSource {
			if to.Is4() == a.Addr().Is4() {
				entries = append(entries, newElement(Masquerading, p.sources, nftmsg.Element{Key: addr, Value: to.AsSlice()}, len(addr)))
			}
		}
		seen := m.unmasked(a)
		entries = append(entries, notTo(Masquerading, p.nets, addr, seen)...)
		if m.DropInvalid {
			entries = append(entries, newElement(Dropping, p.strict, nftmsg.Element{Key: addr}, len(addr)))
			entries = append(entries, notTo(Dropping, p.lenient, addr, seen)...)
		}
	}
	return entries, err
}

// unmasked returns the networks that see an address as it is. None contains another: ranges of a set must not overlap.
func (m Masq) unmasked(a netip.Prefix) []netip.Prefix {
	var nets []netip.Prefix
	if !m.SameSubnet {
		nets = append(nets, a.Masked())
	}
	for _, n := range m.Exclude {
		if n.Addr().Is4() == a.Addr().Is4() {
			nets = append(nets, n.Masked())
		}
	}
	sort.Slice(nets, func(i, j int) bool { return nets[i].Bits() < nets[j].Bits() }) // who contains others comes first
	var outer []netip.Prefix
	for _, n := range nets {
		if !slices.ContainsFunc(outer, func(o netip.Prefix) bool { return o.Overlaps(n) }) {
			outer = append(outer, n)
		}
	}
	return outer
}

// notTo returns an entry for each network in a set of addresses with networks.
func notTo(rs *RuleSet, set *set, addr []byte, nets []netip.Prefix) (entries []Element) {
	for _, n := range nets {
		entries = append(entries, newElement(rs, set, nftmsg.Element{
			Key:    slices.Concat(addr, n.Addr().AsSlice()),
			KeyEnd: slices.Concat(addr, last(n).AsSlice()),
		}, len(addr)))
	}
	return entries
}

// distinct leaves one prefix of each address, the longest. It refuses what is not a prefix.
func distinct(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, p := range prefixes {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits())
		if !p.IsValid() {
			return nil, fmt.Errorf("address %s has no valid prefix length", p.Addr())
		}
		i := slices.IndexFunc(out, func(q netip.Prefix) bool { return q.Addr() == p.Addr() })
		switch {
		case i < 0:
			out = append(out, p)
		case p.Bits() > out[i].Bits():
			out[i] = p
		}
	}
	return out, nil
}

// last returns the highest address of a network.
func last(n netip.Prefix) netip.Addr {
	b := n.Addr().AsSlice()
	for i := n.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// protocol is what masquerading has for one version of IP.
type protocol struct {
	nfproto      byte
	saddr, daddr nftmsg.Payload // loaded side by side they are a key of nets
	multicast    netip.Prefix

	addrs   *set // what comes from here is masqueraded,
	nets    *set // unless it goes from here to there;
	sources *set // and what comes from here is seen as this

	// Of [Dropping], which has sets of its own: those of one concern are replaced without asking another.
	strict, lenient *set
}

func ip4() protocol {
	return protocol{
		nfproto:   unix.NFPROTO_IPV4,
		saddr:     nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: 12, Len: 4, Register: unix.NFT_REG_1},
		daddr:     nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: 16, Len: 4, Register: unix.NFT_REG32_01},
		multicast: netip.MustParsePrefix("224.0.0.0/4"),
		addrs:     addrSet("masq4", nftmsg.TypeIPv4Addr),
		nets:      netSet("nomasq4", nftmsg.TypeIPv4Addr),
		sources:   sourceMap("snat4", nftmsg.TypeIPv4Addr),
		strict:    addrSet("valid4", nftmsg.TypeIPv4Addr),
		lenient:   netSet("anystate4", nftmsg.TypeIPv4Addr),
	}
}

func ip6() protocol {
	return protocol{
		nfproto:   unix.NFPROTO_IPV6,
		saddr:     nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: 8, Len: 16, Register: unix.NFT_REG_1},
		daddr:     nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: 24, Len: 16, Register: unix.NFT_REG_2},
		multicast: netip.MustParsePrefix("ff00::/8"),
		addrs:     addrSet("masq6", nftmsg.TypeIPv6Addr),
		nets:      netSet("nomasq6", nftmsg.TypeIPv6Addr),
		sources:   sourceMap("snat6", nftmsg.TypeIPv6Addr),
		strict:    addrSet("valid6", nftmsg.TypeIPv6Addr),
		lenient:   netSet("anystate6", nftmsg.TypeIPv6Addr),
	}
}

func protocolOf(a netip.Addr) protocol {
	if a.Is4() {
		return ip4()
	}
	return ip6()
}

// maxAddrs is how many addresses of a family can be masqueraded in a namespace. A set that says its size gets a hash
// table of that size (512 KiB). One that does not gets a table that the kernel resizes in the background: a dump
// meanwhile can list elements twice or leave them out, and what DEL does not see it leaves behind.
const maxAddrs = 1 << 15

func addrSet(name string, t nftmsg.Type) *set {
	return &set{
		Set:     nftmsg.Set{Table: table, Name: name, Key: []nftmsg.Type{t}, Size: maxAddrs},
		subject: t,
		text:    func(x nftmsg.Element) string { return address(x.Key).String() },
	}
}

func netSet(name string, t nftmsg.Type) *set {
	return &set{
		Set: nftmsg.Set{
			Table: table, Name: name, Key: []nftmsg.Type{t, t}, Interval: true,
		},
		subject: t,
		text: func(x nftmsg.Element) string {
			half := len(x.Key) / 2
			return fmt.Sprintf("%s not to %s", address(x.Key[:half]), network(x.Key[half:], lastKey(x)[half:]))
		},
	}
}

// maxSources is how many addresses of a family can have a source of their own. Every host that masquerades has the maps.
const maxSources = 1 << 12

func sourceMap(name string, t nftmsg.Type) *set {
	return &set{
		Set: nftmsg.Set{
			Table: table, Name: name, Key: []nftmsg.Type{t}, Data: []nftmsg.Type{t}, Size: maxSources,
		},
		subject: t,
		text:    func(x nftmsg.Element) string { return fmt.Sprintf("%s as %s", address(x.Key), address(x.Value)) },
	}
}

func masqueradeSkeleton() skeleton {
	s := skeleton{version: "masquerade 2", table: table}
	postrouting := chain{Chain: nftmsg.Chain{
		Table:    table,
		Name:     "postrouting",
		Type:     nftmsg.ChainNAT,
		Hook:     unix.NF_INET_POST_ROUTING,
		Priority: nftmsg.PrioritySNAT,
	}}
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, p.addrs, p.nets, p.sources)
		postrouting.rules = append(postrouting.rules, p.toMulticast(), p.toNet(), p.toSource(), p.masquerade())
	}
	s.chains = []chain{postrouting}
	return s
}

// toMulticast: ip daddr 224.0.0.0/4 return
func (p protocol) toMulticast() []nftmsg.Expr {
	reg, bits := p.daddr.Register, p.multicast.Addr().BitLen()
	return append(p.match(), p.daddr,
		nftmsg.Mask{Register: reg, Bits: net.CIDRMask(p.multicast.Bits(), bits)},
		nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: reg, Data: p.multicast.Addr().AsSlice()},
		nftmsg.Verdict{Code: unix.NFT_RETURN})
}

// toNet: ip saddr . ip daddr @nomasq4 return
func (p protocol) toNet() []nftmsg.Expr {
	return append(p.match(), p.saddr, p.daddr,
		nftmsg.Lookup{Set: p.nets.Name, Register: p.saddr.Register},
		nftmsg.Verdict{Code: unix.NFT_RETURN})
}

// toSource: snat ip to ip saddr map @snat4
func (p protocol) toSource() []nftmsg.Expr {
	reg := p.saddr.Register
	return append(p.match(), p.saddr,
		nftmsg.Map{Set: p.sources.Name, Register: reg, Into: reg},
		nftmsg.NAT{Type: unix.NFT_NAT_SNAT, Family: uint32(p.nfproto), Addr: reg})
}

// masquerade: ip saddr @masq4 masquerade
func (p protocol) masquerade() []nftmsg.Expr {
	return append(p.match(), p.saddr,
		nftmsg.Lookup{Set: p.addrs.Name, Register: p.saddr.Register},
		nftmsg.Masq{})
}

// match: meta nfproto ipv4
func (p protocol) match() []nftmsg.Expr {
	return []nftmsg.Expr{
		nftmsg.Meta{Key: unix.NFT_META_NFPROTO, Register: unix.NFT_REG_1},
		nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: unix.NFT_REG_1, Data: []byte{p.nfproto}},
	}
}

// address reads an address in a key.
func address(key []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(key)
	return a
}

// network returns the network of a range of addresses.
func network(first, last []byte) netip.Prefix {
	bits := 0
	for i := range first {
		diff := first[i] ^ last[i]
		bits += 8 - mathbits.Len8(diff)
		if diff != 0 {
			break
		}
	}
	return netip.PrefixFrom(address(first), bits)
}
