package nft

import (
	"context"
	"fmt"
	mathbits "math/bits"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// Element is a masqueraded address: what it sends gets an address of the host as its source, unless it goes to Net or to
// a multicast group.
type Element struct {
	Addr    netip.Addr
	Net     netip.Prefix // not valid if the element for it is missing
	Comment string       // names the owner
}

// pair is the elements of one address; one that is missing is nil.
type pair struct{ addr, net *nftables.SetElement }

// replacement is the change of the elements of an address.
type replacement struct {
	addr     netip.Addr
	old, new pair
}

// Masquerade masquerades what addresses send beyond their networks: each prefix is the address of a container with its
// prefix length. The elements carry tag as comment, 1 to [MaxComment] bytes. An address that carries another tag is taken
// over. undo gives back what was changed; an address that somebody else has taken over since stays theirs.
func (c *Conn) Masquerade(ctx context.Context, tag string, addrs []netip.Prefix) (undo func(context.Context) error, err error) {
	if err := checkComment(tag); err != nil {
		return nil, err
	}
	addrs, err = distinct(addrs)
	if err != nil {
		return nil, err
	}
	var made []replacement
	err = c.locked(ctx, func() error {
		if err := c.ensure(masqueradeSkeleton()); err != nil {
			return err
		}
		for _, a := range addrs {
			old, err := c.find(a.Addr())
			if err != nil {
				return err
			}
			if want := newPair(a, tag); !old.equal(want) {
				made = append(made, replacement{addr: a.Addr(), old: old, new: want})
			}
		}
		return c.replace(made)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return c.locked(ctx, func() error { return c.restore(tag, made) })
	}, nil
}

func (c *Conn) restore(tag string, made []replacement) error {
	var back []replacement
	for _, r := range made {
		now, err := c.find(r.addr)
		if err != nil {
			return err
		}
		if now.comment() == tag {
			back = append(back, replacement{addr: r.addr, old: now, new: r.old})
		}
	}
	return c.replace(back)
}

// replace makes all replacements in one transaction.
func (c *Conn) replace(rs []replacement) error {
	for _, r := range rs {
		p := protocolOf(r.addr)
		for _, set := range []struct {
			*nftables.Set
			old, new *nftables.SetElement
		}{{p.addrs, r.old.addr, r.new.addr}, {p.nets, r.old.net, r.new.net}} {
			if set.old != nil {
				_ = c.c.SetDeleteElements(set.Set, []nftables.SetElement{*set.old}) // Flush returns the error
			}
			if set.new != nil {
				_ = c.c.SetAddElements(set.Set, []nftables.SetElement{*set.new}) // Flush returns the error
			}
		}
	}
	return c.c.Flush()
}

// Unmasquerade removes all elements whose comment matches, in one transaction, and returns how many. Nothing is sent when
// there are none.
func (c *Conn) Unmasquerade(ctx context.Context, match func(comment string) bool) (n int, err error) {
	err = c.locked(ctx, func() error {
		type deletion struct {
			set      *nftables.Set
			elements []nftables.SetElement
		}
		var deletions []deletion
		for _, p := range []protocol{ip4(), ip6()} {
			for _, set := range []*nftables.Set{p.addrs, p.nets} {
				elements, err := c.elements(set)
				if err != nil {
					return err
				}
				elements = slices.DeleteFunc(elements, func(e nftables.SetElement) bool { return !match(e.Comment) })
				deletions = append(deletions, deletion{set, elements})
			}
		}
		for _, d := range deletions {
			_ = c.c.SetDeleteElements(d.set, d.elements) // Flush returns the error
			n += len(d.elements)
		}
		return c.c.Flush()
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Masqueraded lists the masqueraded addresses, in their order. Where somebody has flushed the rules there are none.
func (c *Conn) Masqueraded(ctx context.Context) ([]Element, error) {
	var list []Element
	err := c.locked(ctx, func() error {
		if rules, err := c.countRules(masqueradeSkeleton()); rules == 0 {
			return err
		}
		for _, p := range []protocol{ip4(), ip6()} {
			addrs, err := c.elements(p.addrs)
			if err != nil {
				return err
			}
			nets, err := c.elements(p.nets)
			if err != nil {
				return err
			}
			netOf := make(map[netip.Addr]netip.Prefix, len(nets))
			for _, e := range nets {
				a, n := decodeNet(e)
				netOf[a] = n
			}
			for _, e := range addrs {
				a, _ := netip.AddrFromSlice(e.Key)
				list = append(list, Element{Addr: a, Net: netOf[a], Comment: e.Comment})
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Element) int { return a.Addr.Compare(b.Addr) })
	return list, err
}

// find reads the elements of an address.
func (c *Conn) find(a netip.Addr) (pair, error) {
	p, key := protocolOf(a), a.AsSlice()
	addr, err := c.element(p.addrs, key)
	if err != nil {
		return pair{}, err
	}
	// An address is in its own network.
	net, err := c.element(p.nets, slices.Concat(key, key))
	return pair{addr, net}, err
}

func newPair(a netip.Prefix, tag string) pair {
	addr, net := a.Addr().AsSlice(), a.Masked()
	return pair{
		addr: &nftables.SetElement{Key: addr, Comment: tag},
		net: &nftables.SetElement{
			Key:     slices.Concat(addr, net.Addr().AsSlice()),
			KeyEnd:  slices.Concat(addr, last(net).AsSlice()),
			Comment: tag,
		},
	}
}

func (p pair) equal(q pair) bool { return same(p.addr, q.addr) && same(p.net, q.net) }

// comment names the owner of the address, "" if there is none.
func (p pair) comment() string {
	if p.addr == nil {
		return ""
	}
	return p.addr.Comment
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

// decodeNet splits an element of an interval set into the address and its network.
func decodeNet(e nftables.SetElement) (netip.Addr, netip.Prefix) {
	half := len(e.Key) / 2
	if e.KeyEnd == nil { // a single address
		e.KeyEnd = e.Key
	}
	a, _ := netip.AddrFromSlice(e.Key[:half])
	first, _ := netip.AddrFromSlice(e.Key[half:])
	bits := 0
	for i := range half {
		diff := e.Key[half+i] ^ e.KeyEnd[half+i]
		bits += 8 - mathbits.Len8(diff)
		if diff != 0 {
			break
		}
	}
	return a, netip.PrefixFrom(first, bits)
}
