package host

import (
	"strings"

	"github.com/tenon-cni/tenon/internal/iptables/legacy"
	"github.com/tenon-cni/tenon/internal/nft"
)

// FilterRule is a rule of nftables or iptables of any program.
type FilterRule struct {
	nft.Rule
	Table  nft.Table
	Chain  string
	Legacy bool // of legacy iptables; the name of the table lacks the suffix then
}

// FilterRules returns the rules of all rule sets of a namespace for which wanted returns true.
func (n *Namespace) FilterRules(wanted func(t nft.Table, chain string) bool) (list []FilterRule) {
	if n.Ruleset == nil {
		return nil
	}
	for _, r := range n.Ruleset.Rules {
		x := FilterRule{Table: r.Table, Chain: r.Chain}
		x.Table.Name, x.Legacy = strings.CutSuffix(r.Table.Name, legacy.Suffix)
		if wanted(x.Table, x.Chain) {
			x.Rule = nft.Describe(r)
			list = append(list, x)
		}
	}
	return list
}
