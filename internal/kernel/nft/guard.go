package nft

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Guard lets a port of a bridge receive only frames whose source is the hardware address mac; others are dropped before
// the bridge sees them. A port is known by its name. The elements carry tag as comment, 1 to [MaxComment] bytes. A port
// that is guarded already, whoever did it, has the new address and tag afterwards. undo gives back what was changed,
// unless somebody else has taken the port over since.
func (c *Conn) Guard(ctx context.Context, tag, port string, mac net.HardwareAddr) (undo func(context.Context) error, err error) {
	if err := checkComment(tag); err != nil {
		return nil, err
	}
	if port == "" || len(port) >= unix.IFNAMSIZ || len(mac) != macLen {
		return nil, fmt.Errorf("port %q with hardware address %q: not an Ethernet interface", port, mac)
	}
	want := newGuard(port, mac, tag)
	var old guard
	var changed bool
	err = c.locked(ctx, func() (err error) {
		if err := c.ensure(guardSkeleton()); err != nil {
			return err
		}
		if old, err = c.guardOf(port); err != nil || old.equal(want) {
			return err
		}
		changed = true
		return c.changeGuard(old, want)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if !changed {
			return nil
		}
		return c.locked(ctx, func() error {
			now, err := c.guardOf(port)
			if err != nil || now.comment() != tag {
				return err
			}
			return c.changeGuard(now, old)
		})
	}, nil
}

// Unguard ends the guard of a port if its comment matches. Nothing but one small question is asked if it has none.
func (c *Conn) Unguard(ctx context.Context, port string, match func(comment string) bool) error {
	return c.locked(ctx, func() error {
		g, err := c.guardOf(port)
		if err != nil || g.port == nil || !match(g.comment()) {
			return err
		}
		return c.changeGuard(g, guard{})
	})
}

// UnguardAll ends all guards whose comment matches, in one transaction.
func (c *Conn) UnguardAll(ctx context.Context, match func(comment string) bool) error {
	return c.locked(ctx, func() error {
		for _, set := range []*nftables.Set{guardedPorts(), guardedMACs()} {
			elements, err := c.elements(set)
			if err != nil {
				return err
			}
			elements = slices.DeleteFunc(elements, func(e nftables.SetElement) bool { return !match(e.Comment) })
			_ = c.c.SetDeleteElements(set, elements) // Flush returns the error
		}
		return c.c.Flush()
	})
}

// Guarded reports whether a port lets in this hardware address and no other, and the comment of the guard. Where somebody
// has flushed the rules no port is guarded.
func (c *Conn) Guarded(ctx context.Context, port string, mac net.HardwareAddr) (comment string, ok bool, err error) {
	var g guard
	err = c.locked(ctx, func() error {
		rules, err := c.countRules(guardSkeleton())
		if rules > 0 {
			g, err = c.guardOf(port)
		}
		return err
	})
	return g.comment(), err == nil && g.equal(newGuard(port, mac, g.comment())), err
}

// guard is the elements of a port: one in the set of ports, and the addresses that it lets in.
type guard struct {
	port *nftables.SetElement
	macs []nftables.SetElement
}

const macLen = 6

func newGuard(port string, mac net.HardwareAddr, tag string) guard {
	key := portKey(port)
	return guard{
		port: &nftables.SetElement{Key: key, Comment: tag},
		macs: []nftables.SetElement{{Key: slices.Concat(key, mac, []byte{0, 0}), Comment: tag}}, // keys are made of 4 bytes
	}
}

// portKey is the name of an interface as the kernel compares it.
func portKey(port string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, port)
	return key
}

// comment names the owner of the port, "" if it is not guarded.
func (g guard) comment() string {
	if g.port == nil {
		return ""
	}
	return g.port.Comment
}

func (g guard) equal(h guard) bool {
	return same(g.port, h.port) && slices.EqualFunc(g.macs, h.macs, func(a, b nftables.SetElement) bool { return same(&a, &b) })
}

// guardOf reads the elements of a port. The set of addresses, which can be large, is read only if there are any.
func (c *Conn) guardOf(port string) (guard, error) {
	key := portKey(port)
	element, err := c.element(guardedPorts(), key)
	if err != nil || element == nil {
		return guard{}, err
	}
	macs, err := c.elements(guardedMACs())
	macs = slices.DeleteFunc(macs, func(e nftables.SetElement) bool { return !bytes.HasPrefix(e.Key, key) })
	return guard{port: element, macs: macs}, err
}

// changeGuard replaces the elements of a port in one transaction.
func (c *Conn) changeGuard(old, now guard) error {
	for _, g := range []struct {
		guard
		change func(*nftables.Set, []nftables.SetElement) error
	}{{old, c.c.SetDeleteElements}, {now, c.c.SetAddElements}} {
		if g.port != nil {
			_ = g.change(guardedPorts(), []nftables.SetElement{*g.port}) // Flush returns the error
			_ = g.change(guardedMACs(), g.macs)
		}
	}
	return c.c.Flush()
}

// maxPorts is how many ports can be guarded in a namespace; see maxAddrs for why there is a limit.
const maxPorts = 1 << 15

func guardedPorts() *nftables.Set {
	return &nftables.Set{Table: bridgeTable, Name: "guarded", KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian, Size: maxPorts}
}

func guardedMACs() *nftables.Set {
	return &nftables.Set{
		Table: bridgeTable, Name: "macs", KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr),
		Concatenation: true, Size: maxPorts,
	}
}

// guardSkeleton has one rule: iifname @guarded iifname . ether saddr != @macs drop
func guardSkeleton() skeleton {
	return skeleton{
		version: "macspoofchk 1",
		sets:    []*nftables.Set{guardedPorts(), guardedMACs()},
		chain: &nftables.Chain{
			Table:    bridgeTable,
			Name:     "prerouting",
			Type:     nftables.ChainTypeFilter,
			Hooknum:  nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityRaw, // with the reference plugin: before anything else looks at the frame
		},
		rules: [][]expr.Any{{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1},
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: guardedPorts().Name},
			&expr.Payload{Base: expr.PayloadBaseLLHeader, Offset: 6, Len: macLen, DestRegister: unix.NFT_REG_2}, // right behind the name
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: guardedMACs().Name, Invert: true},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}},
	}
}
