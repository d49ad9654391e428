package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/network"
)

// TestEnds checks that a plan lists protections of a handed-over attachment that the upstream
// plugins lack.
func TestEnds(t *testing.T) {
	t.Parallel()
	a := cni.Attachment{Network: "pods", Container: "web", IfName: "eth0"}
	held := []kernel.Held{{Comment: a.Tag()}}
	p := &Plan{tags: map[string]bool{a.Tag(): true}, Attachments: []Attachment{
		{Attachment: inspect.Attachment{Record: network.Record{Attachment: a}}, Outcome: HandOver},
	}}
	p.judge(kernel.Ruleset{Held: map[string][]kernel.Held{
		"guard": held, "masquerade": held, kernel.AddressRulesPrefix + "quarantine": held,
	}})
	want := []string{
		"MAC anti-spoofing (macspoofchk) of pods/web/eth0",
		"rule set quarantine of pods/web/eth0",
	}
	if diff := cmp.Diff(want, p.Ends); diff != "" || len(p.Blockers) > 0 {
		t.Errorf("blockers %v, ends (-want +got):\n%s", p.Blockers, diff)
	}
}
