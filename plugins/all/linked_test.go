package all_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// TestRepairLinked: Repair recognises plugins that a runtime has linked in as Tenon's, without any
// file.
func TestRepairLinked(t *testing.T) {
	t.Parallel()
	h := newHost(t, whole)
	h.Caller, h.PluginDirs = plugin.Linked{Plugins: all.Plugins}, []string{}
	h.addMany(2)
	before := h.rules()
	h.Host.Command("nft", "flush", "ruleset")
	if passed := h.repair(); len(passed) > 0 {
		t.Errorf("skipped: %v", passed)
	}
	h.wantRules(before)
}
