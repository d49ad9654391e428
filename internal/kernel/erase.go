package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// Ruleset lists Tenon's tables in the current namespace.
type Ruleset struct {
	Tables []string          // as nft(8) names them
	Held   map[string][]Held // the elements that have an owner, by the name of their rule set
}

// ReadRuleset lists Tenon's tables in the current namespace, none if the kernel lacks nftables.
func ReadRuleset() (r Ruleset, err error) {
	err = inRuleset(func(c *nft.Conn) error {
		tables, err := c.Tables()
		if err != nil {
			return err
		}
		r.Tables = tableNames(tables)
		r.Held, err = c.All()
		return err
	})
	return r, UnlessNoNFT(err)
}

// EraseRules removes Tenon's tables from the current namespace, in one transaction, and returns
// their names. If allowed reports false for the owner of any element, it changes nothing and
// returns these elements.
func EraseRules(ctx context.Context, allowed func(tag string) bool) (tables []string, refused []Held, err error) {
	err = inRuleset(func(c *nft.Conn) error {
		erased, held, err := c.Erase(ctx, allowed)
		tables, refused = tableNames(erased), held
		return err
	})
	return tables, refused, UnlessNoNFT(err)
}

func inRuleset(f func(*nft.Conn) error) error {
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	defer ns.Close()
	c, err := nft.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func tableNames(tables []nft.Table) []string {
	var names []string
	for _, t := range tables {
		names = append(names, fmt.Sprintf("%s %s", t.Family, t.Name))
	}
	return names
}
