package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Filtering filters packets that the host forwards: it drops those between isolated interfaces, and
// then accepts packets from admitted addresses, replies to them, and packets between pools of a
// cluster. An accept verdict ends chain forward of table inet tenon and of no other table: it is
// meant for hosts that set the policy of this chain to drop. The sets name the owner of each
// address.
var Filtering = &RuleSet{name: "filter", skeleton: filterSkeleton}

// Admit returns the elements that accept packets from addresses and replies to them.
func Admit(addrs ...netip.Addr) (list []Element) {
	for _, a := range addrs {
		a = a.Unmap()
		list = append(list, keyElement(Filtering, protocolOf(a).admitted(), a.AsSlice()))
	}
	return list
}

// Admitted returns the address of an element of [Admit].
func (h Held) Admitted() (a netip.Addr, ok bool) {
	for _, p := range families() {
		if h.Set == p.admitted().Name {
			return address(h.Key), true
		}
	}
	return netip.Addr{}, false
}

func (p protocol) admitted() *set { return p.addrSet("admitted") }

func filterSkeleton() skeleton {
	s := isolationSkeleton()
	forward := &s.chains[0]
	for _, p := range families() {
		set, cluster := p.admitted(), p.accepts()
		s.sets = append(s.sets, set, cluster)
		reply := p.rule(p.daddr, set.has(p.daddr.Register))
		reply = append(reply, ctState(stateEstablished|stateRelated)...)
		forward.add(
			// ip saddr @admitted4 accept
			p.rule(p.saddr, set.has(p.saddr.Register), verdict(nftmsg.Accept)),
			// ip daddr @admitted4 ct state established,related accept
			append(reply, verdict(nftmsg.Accept)),
			// ip saddr . ip daddr @forward_cluster4 accept
			p.rule(p.saddr, p.daddr, cluster.has(p.saddr.Register), verdict(nftmsg.Accept)))
	}
	return s
}

// maxIsolated limits the isolated interfaces of a namespace; see maxAddrs for the reason.
const maxIsolated = 1 << 12

// interfaceSet returns a set of names of interfaces, with more fields of the key.
func interfaceSet(t nftmsg.Table, name string, size uint32, more ...nftmsg.Type) *set {
	key := slices.Concat([]nftmsg.Type{nftmsg.TypeIfName}, more)
	return &set{
		Set:  nftmsg.Set{Table: t, Name: name, Key: key, Size: size},
		text: func(x nftmsg.Element) string { return nameOf(x.Key) },
	}
}

// isolated returns the set of isolated interfaces.
func isolated() *set {
	s := interfaceSet(table, "isolated", maxIsolated)
	s.references = membersName
	return s
}

// together returns the set of pairs of isolated interfaces that may exchange packets: an interface
// with itself, unless containers behind it are isolated from each other as well.
func together() *set {
	s := interfaceSet(table, "together", maxIsolated, nftmsg.TypeIfName)
	s.references, s.policy = membersName, true
	s.text = func(x nftmsg.Element) string {
		return fmt.Sprintf("%s with %s", nameOf(x.Key), nameOf(x.Key[unix.IFNAMSIZ:]))
	}
	return s
}

const membersName = "members"

// members returns the set of owners of isolations. A key ends with a digest of the owner, so that
// each owner has its own element.
func members() *set {
	return interfaceSet(table, membersName, maxPorts, nftmsg.TypeIfName, nftmsg.TypeIPv6Addr)
}

// isolationSkeleton has one rule: iifname @isolated oifname @isolated iifname . oifname !=
// @together drop
func isolationSkeleton() skeleton {
	forward := forwardChain(table, "forward", nftmsg.PriorityFilter)
	isolated, together := isolated(), together()
	forward.add([]nftmsg.Expr{
		meta(unix.NFT_META_IIFNAME), isolated.has(unix.NFT_REG_1),
		nftmsg.Meta{Key: unix.NFT_META_OIFNAME, Register: unix.NFT_REG_2}, // follows the other name
		isolated.has(unix.NFT_REG_2), together.lacks(), verdict(nftmsg.Drop),
	})
	return skeleton{
		version: "filter 2", table: table,
		sets: []*set{isolated, together, members()}, chains: []chain{forward},
	}
}
