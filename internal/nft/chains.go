package nft

import (
	"bytes"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// An element of a verdict map leads to a chain with rules of its owner. The chain exists as long as
// an element leads to it. Its name is a digest of its rules, so an existing chain needs no change
// unless its rules were flushed.

// updateChains adds to a change of a verdict map the chains to fill and the chains to drop. The
// changed elements lead to targets.
func (ch *change) updateChains(targets []chain, have *state) {
	if !slices.Contains(ch.set.Data, nftmsg.TypeVerdict) {
		return
	}
	for _, t := range targets {
		if !have.filled(t) {
			ch.fill = append(ch.fill, t)
		}
	}
	if len(ch.del) == 0 {
		return
	}
	left := slices.Clone(have.elements(ch.set))
	left = slices.DeleteFunc(left, func(x nftmsg.Element) bool { return hasKey(ch.del, x) })
	left = append(left, ch.add...)
	for _, x := range ch.del {
		gone := chain{Chain: nftmsg.Chain{Table: ch.set.Table, Name: chainOf(x)}}
		if gone.Name != "" && !hasChain(ch.drop, gone.Name) && !leadsTo(left, gone.Name) {
			gone.rules = have.rules(gone)
			ch.drop = append(ch.drop, gone)
		}
	}
}

func hasKey(list []nftmsg.Element, x nftmsg.Element) bool {
	return slices.ContainsFunc(list, func(y nftmsg.Element) bool {
		return bytes.Equal(x.Key, y.Key)
	})
}

func hasChain(list []chain, name string) bool {
	return slices.ContainsFunc(list, func(ch chain) bool { return ch.Name == name })
}

// chainOf returns the name of the chain that an element of a verdict map leads to, or "".
func chainOf(x nftmsg.Element) string {
	if x.Verdict == nil {
		return ""
	}
	return x.Verdict.Chain
}
