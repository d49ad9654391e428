//go:build amd64

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// scenario is an attachment; the sweep breaks its ADD and its removal.
type scenario struct {
	name   string
	plugin string
	conf   map[string]any // without name and dataDir
	ipam   map[string]any // the section of host-local, without dataDir; nil: none
	setup  []string       // ip commands that prepare the host
	behind *scenario      // creates the interface for a chained plugin, without faults
	env    []string       // in addition to the protocol's variables
	slow   bool           // only with TENON_FAULTS=all
	sample int            // without TENON_FAULTS=all: a single fault at every n-th change; 0: all
	host   bool           // all objects can be removed from the host: by GC, or by DEL without a namespace
	needs  kernel.Feature // required kernel feature, or empty
	tool   string         // required tool, or empty
}

// rig is a scenario in its own namespaces and state directories.
type rig struct {
	t       testing.TB
	net     *testnet.Net
	plugins string
	sample  int
	env     []string
	conf    map[string]any
	state   string // directory of the state files
	clean   string // the snapshot without the attachment
	report  func(finding string)
	settle  time.Duration // the time that the kernel may take to finish work in the background
}

func newRig(t testing.TB, plugins string, s scenario, report func(finding string)) *rig {
	t.Helper()
	if testing.Short() {
		s.sample = max(s.sample, 1) * shortSample
	}
	r := &rig{t: t, plugins: plugins, sample: s.sample, env: s.env, report: report, net: testnet.New(t, "container"), state: t.TempDir(), settle: testnet.Patience}
	if s.setup != nil {
		r.net.Host.Batch(s.setup...)
	}
	var prev json.RawMessage
	if s.behind != nil {
		r.conf = s.behind.complete(r.state, nil)
		prev = r.must("ADD").Stdout
	}
	r.conf = s.complete(r.state, prev)
	// The shared objects (bridge, nftables skeleton, lock files) exist before the first comparison.
	r.must("ADD")
	r.must("DEL")
	r.clean = r.snapshot(testnet.Snapshot)
	return r
}

// complete returns the configuration with the keys that depend on the rig.
func (s *scenario) complete(state string, prev json.RawMessage) map[string]any {
	conf := maps.Clone(s.conf)
	conf["name"], conf["type"] = "faults", s.plugin
	if s.ipam != nil {
		ipam := maps.Clone(s.ipam)
		ipam["type"], ipam["dataDir"] = "host-local", state
		conf["ipam"] = ipam
	}
	if s.plugin == "tuning" || s.plugin == "host-device" {
		conf["dataDir"] = filepath.Join(state, s.plugin)
	}
	if prev != nil {
		conf["prevResult"] = prev
	}
	return conf
}

// recovery is an action of a runtime after an interrupted operation.
type recovery int

const (
	del recovery = iota
	gc           // without live attachments
	delWithoutNamespace
)

func (c recovery) String() string { return [...]string{"DEL", "GC", "DEL without CNI_NETNS"}[c] }

// call runs the plugin under a fault.
func (r *rig) call(verb string, f tracer.Fault) *tracer.Run {
	r.t.Helper()
	return r.start(verb, r.net.Container("container").Path(), r.conf, f)
}

func (r *rig) start(verb, netns string, conf map[string]any, f tracer.Fault) *tracer.Run {
	r.t.Helper()
	stdin, err := json.Marshal(conf)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(r.plugins, conf["type"].(string)))
	cmd.Env = append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_PATH=" + r.plugins, "CNI_COMMAND=" + verb,
		"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + netns,
	}, r.env...)
	var result *tracer.Run
	if err := r.net.Host.Run(func() (err error) {
		result, err = tracer.Trace(cmd, stdin, f)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return result
}

// must runs a verb that must succeed.
func (r *rig) must(verb string) *tracer.Run {
	r.t.Helper()
	result := r.call(verb, tracer.Fault{})
	if result.Code != 0 || result.Killed {
		r.t.Fatalf("%s %s: exit status %d\n%s%s", r.conf["type"], verb, result.Code, result.Stdout, result.Stderr)
	}
	return result
}

// taker is [testnet.Snapshot] or [testnet.Objects].
type taker func(testing.TB, []*testnet.Namespace, ...string) string

func (r *rig) snapshot(take taker) string {
	r.t.Helper()
	return snapshot(r.t, take, r.net, r.state)
}

// snapshot returns the state without the files that host-local keeps on purpose: the last address,
// so that addresses rotate, and the index of owners. The next ADD proves that the index is right,
// because each range has one address.
func snapshot(t testing.TB, take taker, net *testnet.Net, state string) string {
	t.Helper()
	lines := strings.Split(take(t, net.Spaces(), state), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, "/last_reserved_ip.") || strings.Contains(line, "/.owners")
	})
	return strings.Join(lines, "\n")
}

// expectClean reports a finding if the state differs from the initial state, and then takes the
// present state as the initial one. It does not compare settings: see expectSettings.
func (r *rig) expectClean(format string, args ...any) {
	r.t.Helper()
	diff := settledDiff(testnet.WithoutSettings(r.clean), func() string { return r.snapshot(testnet.Objects) }, r.settle)
	if diff == "" {
		return
	}
	r.report(fmt.Sprintf(format, args...) + " left:\n" + diff)
	r.call("DEL", tracer.Fault{})
	r.clean = r.snapshot(testnet.Snapshot)
}

// settingsEvery is the number of changes between two comparisons of settings.
const settingsEvery = 8

// expectSettings is expectClean with settings. Reading them takes longer than breaking a plugin,
// and no ADD restores a setting that was left behind, so the sweep compares them only now and then.
func (r *rig) expectSettings(what string) {
	r.t.Helper()
	now := ""
	diff := settledDiff(r.clean, func() string {
		now = r.snapshot(testnet.Snapshot)
		return now
	}, r.settle)
	if diff != "" {
		r.report(what + " left:\n" + diff)
		r.clean = now
	}
}

// settledDiff returns the difference from the initial state after the kernel had time to settle.
func settledDiff(before string, snapshot func() string, settle time.Duration) string {
	diff := testnet.Diff(before, snapshot())
	for end := time.Now().Add(settle); diff != "" && time.Now().Before(end); {
		time.Sleep(30 * time.Millisecond)
		diff = testnet.Diff(before, snapshot())
	}
	return diff
}

// attempt is a fault and the recovery after it.
type attempt struct {
	effect   tracer.Effect
	recovery recovery
}

// attempts combines each effect with each recovery if the recovery matters: after a kill.
func attempts(effects []tracer.Effect, recoveries []recovery) (list []attempt) {
	for _, e := range effects {
		for _, c := range recoveries {
			list = append(list, attempt{e, c})
			if e != tracer.Kill {
				break // the remaining state does not depend on the effect
			}
		}
	}
	return list
}

// sweep breaks a verb at each of its changes in turn, with each effect. After a kill, each recovery
// must restore the state.
func (r *rig) sweep(verb string, effects []tracer.Effect, recoveries []recovery) {
	r.t.Helper()
	list := attempts(effects, recoveries)
	if verb == "DEL" {
		r.must("ADD")
	}
	changes := r.call(verb, tracer.Fault{}).Changes
	r.must("DEL")
	r.expectClean("ADD and DEL, undisturbed,")
	r.expectSettings("ADD and DEL, undisturbed,")
	tried, missed := 0, 0
	for n, change := range changes {
		if change.Path != "" && !strings.HasPrefix(change.Path, r.state+"/") && !strings.HasPrefix(change.Path, "/proc/") {
			r.report(fmt.Sprintf("%s changes %s, which no snapshot covers", verb, change.Path))
		}
		for i, a := range list {
			if !r.picks(n, i, len(list)) || a.effect == tracer.Fail && change.Errno == 0 || a.effect == tracer.Lose && !change.Reply {
				continue
			}
			tried++
			if !r.try(verb, tracer.Fault{Effect: a.effect, N: n}, a.recovery) {
				missed++
			}
		}
		if n%settingsEvery == settingsEvery-1 || n == len(changes)-1 {
			r.expectSettings(fmt.Sprintf("%s, the faults at change %d (%s) or up to %d before,", verb, n+1, change.Name, settingsEvery-1))
		}
	}
	// A plugin that did not have to wait makes fewer calls.
	r.t.Logf("%d changes, %d faults, of which %d came after the end", len(changes), tried, missed)
}

// picks reports whether the sweep tries fault number i of a number of faults at change number n. A
// sample tries the faults in turn.
func (r *rig) picks(n, i, faults int) bool {
	if all || r.sample == 0 {
		return true
	}
	return n%r.sample == 0 && n/r.sample%faults == i
}

// try breaks a verb once and checks the remaining state. It reports whether the run reached the
// change.
func (r *rig) try(verb string, f tracer.Fault, c recovery) (hit bool) {
	r.t.Helper()
	if verb == "DEL" {
		r.must("ADD")
	}
	result := r.call(verb, f)
	what := fmt.Sprintf("%s, undisturbed", verb)
	if result.Hit {
		what = fmt.Sprintf("%s %s, change %d (%s)", f.Effect, verb, f.N+1, result.Changes[f.N].Name)
	}
	failed := result.Killed || result.Code != 0
	if code, ok := errorCode(result); failed && ok && code == cni.CodeInternal { // code 999 is for bugs
		r.report(fmt.Sprintf("%s: no code for the cause: %q", what, result.Stdout))
	}
	switch {
	case f.Effect == tracer.Kill:
		r.recover(c, what)
	case failed && !wellFormedError(result, f):
		r.report(fmt.Sprintf("%s: exit status %d without an error object: %q%s", what, result.Code, result.Stdout, result.Stderr))
		r.recover(del, what)
	case verb == "ADD" && failed && f.Effect != tracer.Lose:
		r.expectClean("%s: the failed ADD", what)
	case verb == "DEL" && !failed:
		r.expectClean("%s: the successful DEL", what)
	default:
		r.recover(del, what)
	}
	return result.Hit
}

// recover removes the remains of a broken verb and expects that none are left.
func (r *rig) recover(c recovery, what string) {
	r.t.Helper()
	var result *tracer.Run
	switch c {
	case del:
		result = r.call("DEL", tracer.Fault{})
	case delWithoutNamespace:
		result = r.start("DEL", "", r.conf, tracer.Fault{})
	case gc:
		conf := maps.Clone(r.conf)
		conf["cni.dev/valid-attachments"] = []any{}
		result = r.start("GC", "", conf, tracer.Fault{})
	}
	if result.Code != 0 {
		r.report(fmt.Sprintf("%s: the following %s fails: %s", what, c, result.Stdout))
	}
	r.expectClean("%s: the following %s", what, c)
}

// wellFormedError reports whether a plugin ended with an error object, as the protocol demands, or
// could not write it because of the fault.
func wellFormedError(result *tracer.Run, f tracer.Fault) bool {
	_, printed := errorCode(result)
	unable := result.Hit && result.Changes[f.N].Name == tracer.Result
	return !result.Killed && (printed || unable)
}

// errorCode returns the code of the error object that a plugin printed; ok is false without one.
func errorCode(result *tracer.Run) (code cni.Code, ok bool) {
	var object struct {
		Code *cni.Code
		Msg  string
	}
	if err := json.Unmarshal(result.Stdout, &object); err != nil || object.Code == nil || object.Msg == "" {
		return 0, false
	}
	return *object.Code, true
}
