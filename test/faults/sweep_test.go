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
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
)

// scenario is an attachment whose making and removal are broken.
type scenario struct {
	name   string
	plugin string
	conf   map[string]any // without name and dataDir
	ipam   map[string]any // host-local's part, without dataDir; nil: none
	setup  []string       // commands of ip that make what has to be there in the host
	behind *scenario      // what makes the interface, undisturbed, for a chained plugin
	env    []string       // beyond the protocol's variables
	slow   bool           // only with TENON_FAULTS=all
	sample int            // without TENON_FAULTS=all: one fault only, at every so many changes; 0: all
	host   bool           // all of it can be removed from the host: by GC, or by DEL without a namespace
	needs  kernel.Feature // of the kernel; empty: nothing special
	tool   string         // that has to be there; empty: none
}

// rig is a scenario in namespaces and state folders of its own.
type rig struct {
	t       testing.TB
	net     *testnet.Net
	plugins string
	sample  int
	env     []string
	conf    map[string]any
	state   string // folder of the state files
	clean   string // snapshot without the attachment
	report  func(finding string)
	settle  time.Duration // how long the kernel may take to finish what it does in the background
}

func newRig(t testing.TB, plugins string, s scenario, report func(finding string)) *rig {
	t.Helper()
	if emulated {
		s.sample = max(s.sample, 1) * emulatedSample
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
	// What attachments share (bridge, nftables skeleton, lock files) is there before the first comparison.
	r.must("ADD")
	r.must("DEL")
	r.clean = r.snapshot(testnet.Snapshot)
	return r
}

// complete returns the configuration with what depends on where it is used.
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

// recovery is what a runtime does after an operation broke off.
type recovery int

const (
	del recovery = iota
	gc           // keeps no attachment
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

// must runs a verb that has to succeed.
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

// snapshot is the state without what host-local keeps on purpose: the last address, so that addresses rotate, and its
// cache of who owns what. That the cache is right shows in the next ADD: the ranges have one address.
func snapshot(t testing.TB, take taker, net *testnet.Net, state string) string {
	t.Helper()
	lines := strings.Split(take(t, net.Spaces(), state), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, "/last_reserved_ip.") || strings.Contains(line, "/.owners")
	})
	return strings.Join(lines, "\n")
}

// expectClean reports a finding unless the state is back to what it was, and starts anew from what it is. Settings are left
// to expectSettings.
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

// settingsEvery is at every how many changes the settings are looked at.
const settingsEvery = 8

// expectSettings is expectClean with the settings. No ADD puts back one that was left, so they are looked at now and then:
// reading them takes longer than breaking a plugin.
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

// settledDiff is how the state differs from what it was, once the kernel has had its time.
func settledDiff(before string, snapshot func() string, settle time.Duration) string {
	diff := testnet.Diff(before, snapshot())
	for end := time.Now().Add(settle); diff != "" && time.Now().Before(end); {
		time.Sleep(30 * time.Millisecond)
		diff = testnet.Diff(before, snapshot())
	}
	return diff
}

// attempt is a fault and what comes after it.
type attempt struct {
	effect   tracer.Effect
	recovery recovery
}

// attempts combines each effect with each recovery, where it matters: after a kill.
func attempts(effects []tracer.Effect, recoveries []recovery) (list []attempt) {
	for _, e := range effects {
		for _, c := range recoveries {
			list = append(list, attempt{e, c})
			if e != tracer.Kill {
				break // what is left to recover does not depend on how
			}
		}
	}
	return list
}

// sweep breaks a verb at each of its changes in turn, with each effect. After a kill each of the recoveries has to
// restore the state.
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
	// A plugin that had nothing to wait for makes a few calls less.
	r.t.Logf("%d changes, %d faults, of which %d came after the end", len(changes), tried, missed)
}

// picks reports whether fault number i of so many is tried at change number n: of a sample it is the next at the next.
func (r *rig) picks(n, i, faults int) bool {
	if all || r.sample == 0 {
		return true
	}
	return n%r.sample == 0 && n/r.sample%faults == i
}

// try breaks a verb once and looks at what is left. It reports whether the run got to where it was to break.
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
	if code, ok := errorCode(result); failed && ok && code == cni.CodeInternal { // which is for bugs
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

// recover removes what a broken verb left and expects that nothing remains.
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

// wellFormedError reports whether a plugin ended with an error object, as the protocol demands, unless the object is what the
// fault kept it from writing.
func wellFormedError(result *tracer.Run, f tracer.Fault) bool {
	_, printed := errorCode(result)
	unable := result.Hit && result.Changes[f.N].Name == tracer.Result
	return !result.Killed && (printed || unable)
}

// errorCode returns the code of the error object that a plugin has printed; ok is false if there is none.
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
