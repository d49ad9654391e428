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

// Masquerading replaces the source of packets that containers send beyond their networks with an
// address of the host.
var Masquerading = &RuleSet{name: "masquerade", skeleton: masqueradeSkeleton}

// Masq holds the options of masquerading.
type Masq struct {
	Exclude    []netip.Prefix // other destinations that see the container's own address
	SameSubnet bool           // also masquerade to the container's own network
	// ToSource are the source addresses to use, one for each family, instead of an address of the
	// interface that packets leave by.
	ToSource []netip.Addr
	// DropInvalid drops packets that cannot be masqueraded, because the kernel does not know their
	// connection.
	DropInvalid bool
}

// Elements returns the elements that masquerade packets from addresses, except to their networks
// and to multicast groups. Each prefix is the address of a container with its prefix length.
func (m Masq) Elements(addrs ...netip.Prefix) ([]Element, error) {
	addrs, err := distinct(addrs)
	var elements []Element
	for _, a := range addrs {
		p, addr := protocolOf(a.Addr()), a.Addr().AsSlice()
		byAddr := func(rs *RuleSet, set *set, value []byte) {
			elements = append(elements,
				newElement(rs, set, nftmsg.Element{Key: addr, Value: value}, len(addr)))
		}
		excluded := m.unmasked(a)
		byAddr(Masquerading, p.addrs, nil)
		for _, to := range m.ToSource {
			if to.Is4() == a.Addr().Is4() {
				byAddr(Masquerading, p.sources, to.AsSlice())
			}
		}
		elements = append(elements, withNets(Masquerading, p.nets, addr, excluded)...)
		if m.DropInvalid {
			byAddr(Dropping, p.strict, nil)
			elements = append(elements, withNets(Dropping, p.lenient, addr, excluded)...)
		}
	}
	return elements, err
}

// unmasked returns the networks that see the container's own address. No network contains another,
// because ranges of a set must not overlap.
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
	// Outer networks come first.
	sort.Slice(nets, func(i, j int) bool { return nets[i].Bits() < nets[j].Bits() })
	var outer []netip.Prefix
	for _, n := range nets {
		if !slices.ContainsFunc(outer, func(o netip.Prefix) bool { return o.Overlaps(n) }) {
			outer = append(outer, n)
		}
	}
	return outer
}

// withNets returns an element for an address with each network.
func withNets(rs *RuleSet, set *set, addr []byte, nets []netip.Prefix) (list []Element) {
	for _, n := range nets {
		list = append(list, newElement(rs, set, nftmsg.Element{
			Key:    slices.Concat(addr, n.Addr().AsSlice()),
			KeyEnd: slices.Concat(addr, last(n).AsSlice()),
		}, len(addr)))
	}
	return list
}

// distinct keeps the longest prefix of each address. It returns an error for an invalid prefix.
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

// protocol holds the sets and header fields of one version of IP.
type protocol struct {
	nfproto      byte
	suffix       string         // of the names of sets
	addr         nftmsg.Type    // of keys
	saddr, daddr nftmsg.Payload // loaded together, they form a key of nets
	multicast    netip.Prefix

	addrs   *set // sources to masquerade,
	nets    *set // except from these to these destinations
	sources *set // and the source to use instead

	// The same for [Dropping]. A rule set replaces the elements of its own sets only.
	strict, lenient *set
}

func ip4() protocol {
	return protocol{
		nfproto: unix.NFPROTO_IPV4, suffix: "4", addr: nftmsg.TypeIPv4Addr,
		saddr:     nftmsg.Payload{Offset: 12, Len: 4, Register: unix.NFT_REG_1},
		daddr:     nftmsg.Payload{Offset: 16, Len: 4, Register: unix.NFT_REG32_01},
		multicast: netip.MustParsePrefix("224.0.0.0/4"),
	}.withSets()
}

func ip6() protocol {
	return protocol{
		nfproto: unix.NFPROTO_IPV6, suffix: "6", addr: nftmsg.TypeIPv6Addr,
		saddr:     nftmsg.Payload{Offset: 8, Len: 16, Register: unix.NFT_REG_1},
		daddr:     nftmsg.Payload{Offset: 24, Len: 16, Register: unix.NFT_REG_2},
		multicast: netip.MustParsePrefix("ff00::/8"),
	}.withSets()
}

func families() []protocol { return []protocol{ip4(), ip6()} }

func (p protocol) withSets() protocol {
	p.saddr.Base, p.daddr.Base = unix.NFT_PAYLOAD_NETWORK_HEADER, unix.NFT_PAYLOAD_NETWORK_HEADER
	p.addrs, p.nets, p.sources = p.addrSet("masq"), p.netSet("nomasq"), p.sourceMap("snat")
	p.strict, p.lenient = p.addrSet("valid"), p.netSet("anystate")
	return p
}

func protocolOf(a netip.Addr) protocol {
	if a.Is4() {
		return ip4()
	}
	return ip6()
}

// maxAddrs limits the masqueraded addresses of a family in a namespace. A set with a size gets a
// hash table of that size (512 KiB). Without a size the kernel resizes the table in the background,
// and a dump during the resize can list elements twice or omit them: DEL would leave those behind.
const maxAddrs = 1 << 15

// maxSources limits the addresses of a family with a source of their own. The maps exist on every
// host that masquerades.
const maxSources = 1 << 12

func (p protocol) addrSet(name string) *set {
	return &set{
		Set: nftmsg.Set{Table: table, Name: name + p.suffix, Key: []nftmsg.Type{p.addr},
			Size: maxAddrs},
		subject: p.addr, shared: true,
		text: func(x nftmsg.Element) string { return address(x.Key).String() },
	}
}

func (p protocol) netSet(name string) *set {
	key := []nftmsg.Type{p.addr, p.addr}
	return &set{
		Set:     nftmsg.Set{Table: table, Name: name + p.suffix, Key: key, Interval: true},
		subject: p.addr, shared: true,
		text: func(x nftmsg.Element) string { return related(x, "not to") },
	}
}

// related describes an address with a network for users.
func related(x nftmsg.Element, relation string) string {
	half := len(x.Key) / 2
	net := network(x.Key[half:], lastKey(x)[half:])
	return fmt.Sprintf("%s %s %s", address(x.Key[:half]), relation, net)
}

func (p protocol) sourceMap(name string) *set {
	addr := []nftmsg.Type{p.addr}
	return &set{
		Set: nftmsg.Set{Table: table, Name: name + p.suffix, Key: addr, Data: addr,
			Size: maxSources},
		subject: p.addr, shared: true,
		text: func(x nftmsg.Element) string {
			return fmt.Sprintf("%s as %s", address(x.Key), address(x.Value))
		},
	}
}

func masqueradeSkeleton() skeleton {
	s := skeleton{version: "masquerade 3", table: table}
	postrouting := chain{Chain: natChain("postrouting", unix.NF_INET_POST_ROUTING,
		nftmsg.PrioritySNAT)}
	for _, p := range families() {
		cluster := p.cluster()
		s.sets = append(s.sets, p.addrs, p.nets, p.sources, cluster)
		from, to, group := p.saddr.Register, p.daddr.Register, p.multicast.Addr()
		mask := net.CIDRMask(p.multicast.Bits(), group.BitLen())
		postrouting.add(
			// ip daddr 224.0.0.0/4 return
			p.rule(p.daddr, nftmsg.Mask{Register: to, Bits: mask},
				nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: to, Data: group.AsSlice()},
				verdict(unix.NFT_RETURN)),
			// ip saddr . ip daddr @nomasq4 return
			p.rule(p.saddr, p.daddr, p.nets.has(from), verdict(unix.NFT_RETURN)),
			// ip saddr . ip daddr @cluster4 return
			p.rule(p.saddr, p.daddr, cluster.has(from), verdict(unix.NFT_RETURN)),
			// snat ip to ip saddr map @snat4
			p.rule(p.saddr, nftmsg.Map{Set: p.sources.Name, Register: from, Into: from},
				nftmsg.NAT{Type: unix.NFT_NAT_SNAT, Family: uint32(p.nfproto), Addr: from}),
			// ip saddr @masq4 masquerade
			p.rule(p.saddr, p.addrs.has(from), nftmsg.Masq{}),
		)
	}
	s.chains = []chain{postrouting}
	return s
}

// address decodes an address in a key.
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
