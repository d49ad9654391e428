package nft

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Elements of a verdict map lead to chains, which an owner fills with rules of its own. A chain is there as long as an
// element leads to it. Its name says what is in it: where it is there it need not be filled, unless somebody has flushed it.

// lead adds to a change of a verdict map the chains to fill and those to drop. wanted are the chains its new elements lead
// to, and those that have to stay.
func (c *Conn) lead(ch *change, wanted []chain) error {
	if !slices.Contains(ch.set.Data, nftmsg.TypeVerdict) {
		return nil
	}
	for _, w := range wanted {
		if ok, err := c.filled(w); err != nil {
			return err
		} else if !ok {
			ch.fill = append(ch.fill, w)
		}
	}
	if len(ch.del) == 0 {
		return nil
	}
	left, err := c.elements(ch.set.Set)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, x := range left {
		if !slices.ContainsFunc(ch.del, func(d nftmsg.Element) bool { return bytes.Equal(d.Key, x.Key) }) {
			used[chainOf(x)] = true
		}
	}
	for _, x := range ch.add {
		used[chainOf(x)] = true
	}
	for _, x := range ch.del {
		name := chainOf(x)
		if name == "" || used[name] {
			continue
		}
		used[name] = true // once
		rules, err := c.messages.Rules(ch.set.Table, name)
		if err != nil {
			return fmt.Errorf("rules of nft chain %s: %w", name, err)
		}
		gone := chain{Chain: nftmsg.Chain{Table: ch.set.Table, Name: name}}
		for _, r := range rules {
			var rule []nftmsg.Expr
			for _, e := range r.Exprs {
				rule = append(rule, e)
			}
			gone.rules = append(gone.rules, rule)
		}
		ch.drop = append(ch.drop, gone)
	}
	return nil
}

// filled reports whether a chain is there with all its rules.
func (c *Conn) filled(ch chain) (bool, error) {
	rules, err := c.messages.Rules(ch.Table, ch.Name)
	if err != nil {
		return false, fmt.Errorf("rules of nft chain %s: %w", ch.Name, err)
	}
	return len(rules) == len(ch.rules), nil
}

func (p *plan) fill(chains []chain) {
	for _, ch := range chains {
		p.AddChain(ch.Chain)
		p.FlushChain(ch.Chain)
		for _, rule := range ch.rules {
			p.AddRule(ch.Chain, rule)
		}
	}
}

func (p *plan) drop(chains []chain) {
	for _, ch := range chains {
		p.FlushChain(ch.Chain)
		p.DeleteChain(ch.Chain)
	}
}

// leads are the chains that wished elements lead to.
func (in *wished) leads() []chain {
	if in == nil {
		return nil
	}
	return in.chains
}

func withChain(list []chain, ch chain) []chain {
	if slices.ContainsFunc(list, func(o chain) bool { return o.Name == ch.Name }) {
		return list
	}
	return append(list, ch)
}

// dropped are the chains that changes have dropped, to which elements lead that come back.
func dropped(changes []change, back change) (chains []chain) {
	for _, ch := range changes {
		for _, gone := range ch.drop {
			if ch.set == back.set && slices.ContainsFunc(back.add, func(x nftmsg.Element) bool { return chainOf(x) == gone.Name }) {
				chains = append(chains, gone)
			}
		}
	}
	return chains
}

// chainOf returns the name of the chain that an element of a verdict map leads to, "" for others.
func chainOf(x nftmsg.Element) string {
	if x.Verdict == nil {
		return ""
	}
	return x.Verdict.Chain
}
