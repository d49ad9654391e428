package nft

import (
	"fmt"
	"testing"
)

// TestExpressions checks that the rules that every host gets use only expressions that Linux has
// had since 5.6, so that kernels older than the test kernels, such as the 5.14 of EL 9, load
// them. A new expression must be listed here with the kernel version that introduced it.
func TestExpressions(t *testing.T) {
	t.Parallel()
	since := map[string]string{
		"Meta": "3.13", "Payload": "3.13", "Cmp": "3.13", "Mask": "3.13", "Lookup": "3.13",
		"Map": "3.13", "Verdict": "3.13",
		"Ct": "3.13", "NAT": "3.13", "Masq": "3.18", "Fib": "4.10", "Immediate": "3.13",
		"SetCt": "4.9", // labels, too
	}
	for _, rs := range allRuleSets() {
		for _, chain := range rs.skeleton().chains {
			for i, rule := range chain.rules {
				for _, e := range rule {
					name := fmt.Sprintf("%T", e)[len("nftmsg."):]
					if since[name] == "" {
						t.Errorf("%s: chain %s, rule %d: expression %s", rs, chain.Name, i, name)
					}
				}
			}
		}
	}
}
