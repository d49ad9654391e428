package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/nft"
)

// Rules and tables of other programs in nftables.
type (
	Table   = nft.Table
	Rule    = nft.Rule
	Pruning = nft.Pruning
)

// The families of a [Table].
const (
	TableINet   = nft.INet
	TableIPv4   = nft.IPv4
	TableIPv6   = nft.IPv6
	TableBridge = nft.Bridge
)

// Prune removes rules and chains from a table of another program, in one transaction. Rollback does
// not restore them.
func (s Rules) Prune(p Pruning) error {
	return s.space.tx.Do(fmt.Sprintf("prune %s %s %s", p.Table.Family, p.Table.Name, p.Base), func() error {
		c, err := s.space.rules()
		if err != nil {
			return err
		}
		return c.Prune(s.space.tx.ctx, p)
	}, nil)
}

// Of lists the rules of a chain, none if the chain does not exist.
func (s Rules) Of(t Table, chain string) ([]Rule, error) {
	return ask(s, func(c *nft.Conn) ([]Rule, error) { return c.Rules(t, chain) })
}

// HasChain reports whether a table has a chain.
func (s Rules) HasChain(t Table, chain string) (bool, error) {
	return ask(s, func(c *nft.Conn) (bool, error) { return c.HasChain(t, chain) })
}
