package portmap_test

import (
	"regexp"

	"github.com/tenon-cni/tenon/plugin/plugintest"
)

var gateChain = regexp.MustCompile(`chain (hostports_[0-9a-f]{16}) `)

// gateChains are the chains with conditions.
func gateChains(host *plugintest.Namespace) (names []string) {
	for _, m := range gateChain.FindAllStringSubmatch(host.Command("nft", "list", "table", "inet",
		"tenon"), -1) {
		names = append(names, m[1])
	}
	return names
}
