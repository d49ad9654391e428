package load

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// small is a run of less than a minute.
func small() settings {
	return settings{nodes: 20, pods: 110, seers: 20, lost: 2, churn: time.Minute,
		spread: 30 * time.Second, dir: "/dev/shm", pool: "10.64.0.0/11"}
}

// simulated runs a simulation and returns what it counted.
func simulated(t *testing.T, s settings) (r *report) {
	t.Helper()
	p := new(progress)
	synctest.Test(t, func(t *testing.T) { r = inMemory(t, s, p) })
	want := fmt.Sprintf("checks: %d allocations, ", s.nodes*(s.pods+1)) // one minute of churn
	if line := p.line(0); !strings.HasPrefix(line, want) {
		t.Errorf("progress in the end: %q, expected %q", line, want)
	}
	return r
}

// TestScale runs a small simulation. Blind nodes must write as much as others.
func TestScale(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	s := small()
	full := simulated(t, s)
	s.seers = 1
	blind := simulated(t, s)
	full.print(t.Output())
	for _, phase := range []string{"cold start", "churn"} {
		a := full.count(t, phase, "write transactions")
		b := blind.count(t, phase, "write transactions")
		if a < b*8/10-10 || a > b*12/10+10 {
			t.Errorf("%s: nodes that see each other made %d write transactions, blind ones %d",
				phase, a, b)
		}
	}
	if n := blind.count(t, "loss of 2 nodes", "until all blocks were reclaimed"); n > 300 {
		t.Errorf("blind nodes took %d s to reclaim the blocks of lost ones", n)
	}
	if n := full.count(t, "churn", "write transactions"); n > 2*s.nodes {
		t.Errorf("churn of %d nodes made %d write transactions", s.nodes, n)
	}
}
