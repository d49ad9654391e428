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
		for _, t := range tables {
			r.Tables = append(r.Tables, fmt.Sprintf("%s %s", t.Family, t.Name))
		}
		r.Held, err = c.All()
		return err
	})
	return r, UnlessNoNFT(err)
}

// EraseRules removes Tenon's tables from the current namespace, in one transaction. If allowed
// reports false for the owner of any element, it changes nothing and returns these elements.
func EraseRules(ctx context.Context, allowed func(tag string) bool) (refused []Held, err error) {
	err = inRuleset(func(c *nft.Conn) (err error) {
		_, refused, err = c.Erase(ctx, allowed)
		return err
	})
	return refused, UnlessNoNFT(err)
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
