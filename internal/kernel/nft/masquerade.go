package nft

import (
	"fmt"
	mathbits "math/bits"
	"net"
	"net/netip"
	"slices"
	"sort"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Masquerading gives what containers send beyond their networks an address of the host as its source.
var Masquerading = &Concern{name: "masquerade", skeleton: masqueradeSkeleton}

// Masquerade is [Masq.Entries] of the zero Masq.
func Masquerade(addrs ...netip.Prefix) ([]Entry, error) { return Masq{}.Entries(addrs...) }

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
func (m Masq) Entries(addrs ...netip.Prefix) ([]Entry, error) {
	addrs, err := distinct(addrs)
	var entries []Entry
	for _, a := range addrs {
		p, addr := protocolOf(a.Addr()), a.Addr().AsSlice()
		entries = append(entries, newEntry(Masquerading, p.addrs, nftables.SetElement{Key: addr}, len(addr)))
		for _, to := range m.ToSource {
			if to.Is4() == a.Addr().Is4() {
				entries = append(entries, newEntry(Masquerading, p.sources, nftables.SetElement{Key: addr, Val: to.AsSlice()}, len(addr)))
			}
		}
		seen := m.unmasked(a)
		entries = append(entries, notTo(Masquerading, p.nets, addr, seen)...)
		if m.DropInvalid {
			entries = append(entries, newEntry(Dropping, p.strict, nftables.SetElement{Key: addr}, len(addr)))
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
func notTo(concern *Concern, set *set, addr []byte, nets []netip.Prefix) (entries []Entry) {
	for _, n := range nets {
		entries = append(entries, newEntry(concern, set, nftables.SetElement{
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
	saddr, daddr expr.Payload // loaded side by side they are a key of nets
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
		saddr:     expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4, DestRegister: unix.NFT_REG_1},
		daddr:     expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4, DestRegister: unix.NFT_REG32_01},
		multicast: netip.MustParsePrefix("224.0.0.0/4"),
		addrs:     addrSet("masq4", nftables.TypeIPAddr),
		nets:      netSet("nomasq4", nftables.TypeIPAddr),
		sources:   sourceMap("snat4", nftables.TypeIPAddr),
		strict:    addrSet("valid4", nftables.TypeIPAddr),
		lenient:   netSet("anystate4", nftables.TypeIPAddr),
	}
}

func ip6() protocol {
	return protocol{
		nfproto:   unix.NFPROTO_IPV6,
		saddr:     expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 16, DestRegister: unix.NFT_REG_1},
		daddr:     expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16, DestRegister: unix.NFT_REG_2},
		multicast: netip.MustParsePrefix("ff00::/8"),
		addrs:     addrSet("masq6", nftables.TypeIP6Addr),
		nets:      netSet("nomasq6", nftables.TypeIP6Addr),
		sources:   sourceMap("snat6", nftables.TypeIP6Addr),
		strict:    addrSet("valid6", nftables.TypeIP6Addr),
		lenient:   netSet("anystate6", nftables.TypeIP6Addr),
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

func addrSet(name string, t nftables.SetDatatype) *set {
	return &set{
		Set:     &nftables.Set{Table: table, Name: name, KeyType: t, KeyByteOrder: binaryutil.BigEndian, Size: maxAddrs},
		subject: t.Name,
		text:    func(x nftables.SetElement) string { return address(x.Key).String() },
	}
}

func netSet(name string, t nftables.SetDatatype) *set {
	return &set{
		Set: &nftables.Set{
			Table: table, Name: name, KeyType: nftables.MustConcatSetType(t, t), Interval: true, Concatenation: true,
		},
		subject: t.Name,
		text: func(x nftables.SetElement) string {
			half := len(x.Key) / 2
			return fmt.Sprintf("%s not to %s", address(x.Key[:half]), network(x.Key[half:], lastKey(x)[half:]))
		},
	}
}

// maxSources is how many addresses of a family can have a source of their own. Every host that masquerades has the maps.
const maxSources = 1 << 12

func sourceMap(name string, t nftables.SetDatatype) *set {
	return &set{
		Set: &nftables.Set{
			Table: table, Name: name, IsMap: true, KeyType: t, DataType: t, KeyByteOrder: binaryutil.BigEndian, Size: maxSources,
		},
		subject: t.Name,
		text:    func(x nftables.SetElement) string { return fmt.Sprintf("%s as %s", address(x.Key), address(x.Val)) },
	}
}

func masqueradeSkeleton() skeleton {
	s := skeleton{version: "masquerade 2", table: table}
	postrouting := chain{Chain: &nftables.Chain{
		Table:    table,
		Name:     "postrouting",
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}}
	for _, p := range []protocol{ip4(), ip6()} {
		s.sets = append(s.sets, p.addrs, p.nets, p.sources)
		postrouting.rules = append(postrouting.rules, p.toMulticast(), p.toNet(), p.toSource(), p.masquerade())
	}
	s.chains = []chain{postrouting}
	return s
}

// toMulticast: ip daddr 224.0.0.0/4 return
func (p protocol) toMulticast() []expr.Any {
	reg, bits := p.daddr.DestRegister, p.multicast.Addr().BitLen()
	return append(p.match(), &p.daddr,
		&expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: p.daddr.Len,
			Mask: net.CIDRMask(p.multicast.Bits(), bits), Xor: make([]byte, p.daddr.Len),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: p.multicast.Addr().AsSlice()},
		&expr.Verdict{Kind: expr.VerdictReturn})
}

// toNet: ip saddr . ip daddr @nomasq4 return
func (p protocol) toNet() []expr.Any {
	return append(p.match(), &p.saddr, &p.daddr,
		&expr.Lookup{SourceRegister: p.saddr.DestRegister, SetName: p.nets.Name},
		&expr.Verdict{Kind: expr.VerdictReturn})
}

// toSource: snat ip to ip saddr map @snat4
func (p protocol) toSource() []expr.Any {
	reg := p.saddr.DestRegister
	return append(p.match(), &p.saddr,
		&expr.Lookup{SourceRegister: reg, DestRegister: reg, IsDestRegSet: true, SetName: p.sources.Name},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(p.nfproto), RegAddrMin: reg})
}

// masquerade: ip saddr @masq4 masquerade
func (p protocol) masquerade() []expr.Any {
	return append(p.match(), &p.saddr,
		&expr.Lookup{SourceRegister: p.saddr.DestRegister, SetName: p.addrs.Name},
		&expr.Masq{})
}

// match: meta nfproto ipv4
func (p protocol) match() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{p.nfproto}},
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
