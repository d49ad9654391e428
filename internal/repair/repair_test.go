package repair_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// wall is a chained plugin with rules in the ruleset and elsewhere. It records its other rules in
// log.
type wall struct {
	plugin.Common
	Broken string `json:"broken"`

	log *[]string
	net *testnet.Net
}

type call = chained.Session

func (w *wall) Apply(context.Context, *call, *cni.Result) error      { return nil }
func (w *wall) Verify(context.Context, *call) error                  { return errors.New("a brick is missing") }
func (w *wall) Remove(context.Context, *call, session.Gone) error    { return nil }
func (w *wall) Released(context.Context, *call, []kernel.Held) error { return nil }
func (w *wall) VerifyReference(context.Context, *call) error {
	return errors.New("no upstream bricks")
}
func (w *wall) Move(context.Context, *call, bool) ([]session.Move, error) { return nil, nil }
func (w *wall) Rules(s *call) (elements []kernel.Element, err error) {
	if w.Broken == "rules" {
		return nil, errors.New("no such rules")
	}
	return nft.Masq{}.Elements(s.Prev.IPs[0].Address)
}

func (w *wall) Restore(_ context.Context, s *call, of session.Step) ([]string, error) {
	step := map[session.Step]string{session.Deny: "deny", session.Allow: "allow"}[of]
	ruleset := "after the ruleset"
	if !strings.Contains(w.net.Host.Command("nft", "list", "ruleset"), "masquerade") {
		ruleset = "before the ruleset"
	}
	*w.log = append(*w.log, fmt.Sprintf("%s %s %s", step, s.ContainerID, ruleset))
	if w.Broken == step {
		return nil, errors.New("cannot " + step)
	}
	return []string{step}, nil
}

// meadow is a plugin without rules.
type meadow struct{ plugin.Common }

func (*meadow) Add(context.Context, *plugin.Call) (*cni.Result, error) { return nil, nil }
func (*meadow) Del(context.Context, *plugin.Call) error                { return nil }
func (*meadow) Check(context.Context, *plugin.Call) error              { return nil }

// rig is a host with the plugins wall and meadow.
type rig struct {
	*testnet.Net
	t    *testing.T
	path string
	defs []plugin.Definition
	log  []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Net: testnet.New(t), t: t, path: filepath.Join(t.TempDir(), "wall")}
	if err := os.Symlink(self, r.path); err != nil {
		t.Fatal(err)
	}
	traits := chained.Traits{RuleSets: []*kernel.RuleSet{nft.Masquerading}}
	r.defs = []plugin.Definition{
		chained.Define(plugin.Info{Name: "wall", Role: plugin.RoleChained}, traits, func() chained.Decorator {
			return &wall{log: &r.log, net: r.Net}
		}),
		plugin.Define(plugin.Info{Name: "meadow"}, func() plugin.Plugin { return new(meadow) }),
	}
	return r
}

// call returns a CHECK call for container i, with its interface and address in place.
func (r *rig) call(i int, broken string) invoke.Call {
	name := fmt.Sprintf("c%d", i)
	container := r.Container(name)
	if container.Try("ip", "link", "show", "eth0") != nil {
		container.Batch("link add eth0 type veth peer name other", fmt.Sprintf("address add 10.1.0.%d/24 dev eth0", i))
	}
	return invoke.Call{
		Path: r.path,
		Env:  cni.Env{Command: cni.Check, ContainerID: name, Netns: container.Path(), IfName: "eth0", Path: "/nowhere"},
		Stdin: []byte(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"wall","broken":%q,"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.%d/24"}]}}`,
			broken, i)),
	}
}

func (r *rig) do(f func() ([]repair.Outcome, error)) (list []string) {
	r.t.Helper()
	err := r.Host.Run(func() error {
		outcomes, err := f()
		for _, o := range outcomes {
			list = append(list, fmt.Sprintf("%s: %v, failed: %t", strings.Join(o.Restored, ", "), o.Err, o.Failed()))
		}
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
	return list
}

func (r *rig) want(want, got []string) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDenyBeforeAllow is CVE-2025-54388: a repair restores all rules that refuse packets, of all
// attachments, before any rule that accepts packets. If refusing fails for an attachment, the
// repair accepts nothing for it, and repairs the other attachments.
func TestDenyBeforeAllow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gone := r.call(6, "")
	r.Remove("c6")
	foreign := r.call(7, "")
	foreign.Path = "/bin/true"
	calls := []invoke.Call{r.call(2, ""), r.call(3, "rules"), r.call(4, "deny"), r.call(5, "allow"), gone, foreign, r.call(8, "")}
	got := r.do(func() ([]repair.Outcome, error) { return repair.Run(t.Context(), r.defs, calls) })
	rules := func(i int) string { return fmt.Sprintf("masq4 10.1.0.%d, nomasq4 10.1.0.%d not to 10.1.0.0/24", i, i) }
	r.want([]string{
		rules(2) + ", deny, allow: <nil>, failed: false",
		": no such rules, failed: true",
		rules(4) + ": cannot deny, failed: true",
		rules(5) + ", deny: cannot allow, failed: true",
		fmt.Sprintf(": CNI_NETNS: %q: network namespace does not exist, failed: false", gone.Env.Netns),
		": is not a plugin of Tenon, failed: false",
		rules(8) + ", deny, allow: <nil>, failed: false",
	}, got)
	const after = " after the ruleset"
	r.want([]string{
		"deny c2" + after, "deny c4" + after, "deny c5" + after, "deny c8" + after,
		"allow c2" + after, "allow c5" + after, "allow c8" + after,
	}, r.log)
}

// TestNothingOpensWhereRulesFail: if the ruleset cannot be repaired, nothing restores rules that
// accept packets.
func TestNothingOpensWhereRulesFail(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := []invoke.Call{r.call(2, ""), r.call(3, "")}
	for i, d := range r.defs {
		r.defs[i] = d.Watched(func(string) error { return errors.New("no rules today") })
	}
	var outcomes []repair.Outcome
	err := r.Host.Run(func() (err error) {
		outcomes, err = repair.Run(t.Context(), r.defs, calls)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "no rules today") {
		t.Errorf("error %v", err)
	}
	for _, o := range outcomes {
		if !o.Failed() || len(o.Restored) > 0 {
			t.Errorf("outcome %+v", o)
		}
	}
	r.want(nil, r.log)
}

// TestMissing: Missing changes nothing, and asks CHECK about rules outside the ruleset.
func TestMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	calls := []invoke.Call{r.call(2, ""), r.call(3, "rules")}
	caller := invoke.Local{}
	for _, d := range r.defs {
		caller[d.Name] = d.Handler(caller)
	}
	missing := func() []string {
		return r.do(func() ([]repair.Outcome, error) { return repair.Missing(t.Context(), r.defs, calls, caller) })
	}
	before := testnet.Snapshot(t, r.Spaces())
	r.want([]string{
		"masq4 10.1.0.2, nomasq4 10.1.0.2 not to 10.1.0.0/24: <nil>, failed: false",
		": no such rules, failed: true",
	}, missing())
	if diff := testnet.Diff(before, testnet.Snapshot(t, r.Spaces())); diff != "" || len(r.log) > 0 {
		t.Errorf("did %q, changed:\n%s", r.log, diff)
	}
	r.do(func() ([]repair.Outcome, error) { return repair.Run(t.Context(), r.defs, calls) })
	r.want([]string{"wall CHECK: a brick is missing: <nil>, failed: false", ": no such rules, failed: true"}, missing())
}

// TestNothing: a repair without attachments succeeds.
func TestNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(nil, r.do(func() ([]repair.Outcome, error) { return repair.Run(t.Context(), r.defs, nil) }))
}

// TestNothingToRepair: a plugin without rules on the host needs no repair.
func TestNothingToRepair(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	call := r.call(2, "")
	call.Path = filepath.Join(filepath.Dir(r.path), "meadow")
	r.want([]string{": <nil>, failed: false"},
		r.do(func() ([]repair.Outcome, error) { return repair.Run(t.Context(), r.defs, []invoke.Call{call}) }))
}
