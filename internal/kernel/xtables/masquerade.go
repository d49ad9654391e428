package xtables

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// Masquerade is the masquerading of one owner: a chain of the nat table, to which POSTROUTING jumps for each address.
type Masquerade struct {
	Chain   string
	Comment string // of each rule, at most [MaxComment] bytes of printable ASCII

	Exclude []netip.Prefix // networks that see the addresses as they are, besides their own
}

// MaxComment is the length in bytes of the longest comment of a rule.
const MaxComment = 255

// Jump is a rule of POSTROUTING that jumps to a chain.
type Jump struct {
	Chain   string
	Comment string
	Source  netip.Addr // the first address of the network if it is for one, not valid if it is for all
}

const hook = "POSTROUTING"

// Add masquerades what addresses of one family, given with their prefix lengths, send beyond their networks, in one
// transaction. fresh says that there is no such chain yet in either kind of iptables: otherwise what there is is read
// first, and only added to. It returns the addresses for which there was no jump. The caller holds the lock of the
// namespace.
func (m Masquerade) Add(ctx context.Context, ns *netns.NS, f Family, fresh bool, addrs []netip.Prefix) (added []netip.Addr, err error) {
	if err := m.valid(); err != nil {
		return nil, err
	}
	have := map[string]bool{} // by words: what iptables-save writes without quotes stands in quotes here
	chained := false
	if !fresh {
		lines, err := f.commands().saved(ctx, ns)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			have[words(line)] = true
			chained = chained || strings.HasPrefix(line, ":"+m.Chain+" ")
		}
	}
	var changes []string
	add := func(rule string) (added bool) {
		if added = !have[words(rule)]; added {
			have[words(rule)] = true
			changes = append(changes, rule)
		}
		return added
	}
	if !chained {
		changes = append(changes, ":"+m.Chain+" - [0:0]")
	}
	for _, a := range addrs {
		add(m.toNetwork(a.Masked()))
		for _, n := range m.Exclude {
			if n.Addr().Is4() == (f == IPv4) {
				add(m.toNetwork(n.Masked()))
			}
		}
		add(m.masquerade(f))
		if add(m.jump(a.Addr())) {
			added = append(added, a.Addr())
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	return added, f.commands().apply(ctx, ns, changes)
}

// words makes lines that say the same equal.
func words(line string) string { return strings.Join(split(line), "\x00") }

func (m Masquerade) valid() error {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if len(m.Comment) > MaxComment || strings.ContainsFunc(m.Comment, func(r rune) bool { return !printable(r) }) {
		return fmt.Errorf("comment %q: not at most %d bytes of printable ASCII", m.Comment, MaxComment)
	}
	return nil
}

// The rules, as iptables-save writes them.

func (m Masquerade) toNetwork(n netip.Prefix) string {
	to := ""
	if n.Bits() > 0 {
		to = " -d " + n.String()
	}
	return m.rule(m.Chain, to, "ACCEPT")
}

func (m Masquerade) masquerade(f Family) string {
	multicast := [...]string{"224.0.0.0/4", "ff00::/8"}[f]
	return m.rule(m.Chain, " ! -d "+multicast, "MASQUERADE")
}

func (m Masquerade) jump(source netip.Addr) string {
	return m.rule(hook, " -s "+netip.PrefixFrom(source, source.BitLen()).String(), m.Chain)
}

func (m Masquerade) rule(chain, match, target string) string {
	return "-A " + chain + match + " -m comment --comment " + strconv.Quote(m.Comment) + " -j " + target
}
