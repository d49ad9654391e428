package cell_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// TestContainer compares a container that the judge creates with one that the commands of a replay
// create. ip(8) must be able to delete it, also after it has created another one.
func TestContainer(t *testing.T) {
	t.Parallel()
	c := script.Container{Name: "c1", NoDetection: true, Up: true, Veth: &script.Veth{
		Host: "host1", HostMAC: "02:00:00:01:00:01", MAC: "02:00:00:00:00:01",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.77.0.2/24"), netip.MustParsePrefix("fd77::2/64")},
	}}
	step := script.Step{Container: &c, Quiet: true}
	var states []*script.Snapshot
	for _, first := range []script.Step{step, {Shell: commands(t, step), Quiet: true}} {
		r, err := cell.Run(t.Context(), &script.Scenario{Name: "container", NoDetection: true, Steps: []script.Step{
			first,
			{Shell: "until ip -n c1 -o link show eth0 | grep -q LOWER_UP; do sleep 0.1; done"},
			{Shell: "ip netns add out; ip netns del c1; test ! -e /run/netns/c1; ip netns del out", Quiet: true},
		}})
		if err != nil || r.Broken != "" {
			t.Fatal(err, r.Broken)
		}
		states = append(states, r.Events[1].After)
	}
	own, replayed := states[0].Container("c1"), states[1].Container("c1")
	if own == nil || replayed == nil {
		t.Fatal("no container")
	}
	eth0 := own.LinkByName("eth0")
	if eth0 == nil || eth0.MAC != c.Veth.MAC || len(own.Addrs) < 4 {
		t.Fatalf("eth0: %+v, addresses %v", eth0, own.Addrs)
	}
	type state struct {
		Addrs    []string
		Host     *host.Link
		Settings map[string]string
	}
	of := func(s *script.Snapshot, n *host.Namespace) (all state) {
		for _, a := range n.Addrs {
			all.Addrs = append(all.Addrs, fmt.Sprint(a))
		}
		slices.Sort(all.Addrs)
		near := *s.Host.Own().LinkByName("host1")
		all.Host = &host.Link{MAC: near.MAC, Kind: near.Kind, Flags: near.Flags}
		all.Settings = maps.Clone(n.Settings)
		maps.DeleteFunc(all.Settings, func(name, _ string) bool { return !strings.Contains(name, ".conf.") })
		return all
	}
	if diff := cmp.Diff(of(states[1], replayed), of(states[0], own)); diff != "" {
		t.Errorf("(-commands +judge):\n%s", diff)
	}
}

// commands returns the commands of a step in a replay.
func commands(t *testing.T, step script.Step) string {
	t.Helper()
	s := script.Scenario{Name: "x", Steps: []script.Step{step}}
	_, text, found := strings.Cut(s.Shell(), "# Step 1: container c1\n")
	text, _, ends := strings.Cut(text, "END-OF-SCENARIO")
	if !found || !ends {
		t.Fatalf("no commands in:\n%s", s.Shell())
	}
	return text
}
