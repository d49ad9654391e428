package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The tables that are ours, one of each family needed. In the rest of the ruleset nothing is changed but what the
// reference plugins have left.
var (
	table       = &nftables.Table{Family: nftables.TableFamilyINet, Name: "tenon"}
	bridgeTable = &nftables.Table{Family: nftables.TableFamilyBridge, Name: "tenon"}
)

// skeleton is what one concern, such as masquerading, needs in a table before it can add elements. It is made at first
// use and then only looked at: adding a base chain again, or deleting anything, costs 15 ms. The chain says which table.
type skeleton struct {
	version string // comment of the first set; changes with anything below
	sets    []*nftables.Set
	chain   *nftables.Chain
	rules   [][]expr.Any
}

// ensure makes the skeleton unless it is there in this version. What there is of another version, or of a damaged one, is
// replaced in one transaction that keeps the elements. The caller holds the lock.
func (c *Conn) ensure(s skeleton) error {
	marker, err := c.c.GetSetByName(s.chain.Table, s.sets[0].Name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("nft set %s: %w", s.sets[0].Name, explain(err, lackingQuestion))
	}
	if err == nil && marker.Comment == s.version {
		rules, err := c.countRules(s)
		if rules == len(s.rules) || err != nil {
			return err
		}
	}
	if err := c.build(s); err != nil {
		return fmt.Errorf("nft table %s %s: %w", Family(s.chain.Table.Family), s.chain.Table.Name, err)
	}
	return nil
}

// countRules counts the rules of a skeleton, of whatever version. Who flushes a table leaves the sets and takes the rules.
func (c *Conn) countRules(s skeleton) (int, error) {
	rules, err := c.c.GetRules(s.chain.Table, s.chain)
	if err != nil {
		return 0, fmt.Errorf("rules of nft table %s %s: %w", Family(s.chain.Table.Family), s.chain.Table.Name, explain(err, lackingQuestion))
	}
	return len(rules), nil
}

func (c *Conn) build(s skeleton) error {
	s.sets[0].Comment = s.version
	existing := make([]*nftables.Set, 0, len(s.sets))
	kept := make(map[string][]nftables.SetElement, len(s.sets))
	for _, set := range s.sets {
		elements, err := c.c.GetSetElements(set)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("elements of set %s: %w", set.Name, err)
		}
		existing, kept[set.Name] = append(existing, set), elements
	}
	c.c.AddTable(s.chain.Table)
	c.c.AddChain(s.chain)
	c.c.FlushChain(s.chain)
	for _, set := range existing {
		c.c.DelSet(set)
	}
	for _, set := range s.sets {
		_ = c.c.AddSet(set, kept[set.Name]) // Flush returns the error
	}
	for _, rule := range s.rules {
		c.c.AddRule(&nftables.Rule{Table: s.chain.Table, Chain: s.chain, Exprs: rule})
	}
	return explain(c.c.Flush(), lackingBuild)
}
