package plugintest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
	"github.com/tenon-cni/tenon/plugin"
)

// enough is the number of faults of a verb up to which the suite injects all. If a plugin has more
// changes, or its changes have already failed through the hook, the suite kills the process at each
// change, injects one other fault there, and alternates the recoveries and the kinds.
const enough = 60

// breakage is a fault, and the verb with which a runtime recovers from it.
type breakage struct {
	effect   tracer.Effect
	recovery cni.Command
}

func (b breakage) String() string {
	switch b.effect {
	case tracer.Kill:
		return "the process was killed before"
	case tracer.Terminate:
		return "the process received SIGTERM at"
	case tracer.Lose:
		return "an error was returned after the success of"
	}
	return "an error was returned by"
}

// calls runs the plugin as a process and breaks each system call by which a verb changes state
// outside the process: a netlink message, a write to a file, a rename, the start of a program. The
// call fails, or the process receives SIGKILL or SIGTERM. The plugin does not need to cooperate.
// PL-ADD-10, PL-DEL-03, PL-GC-01
func (r *Runtime) calls(t *testing.T, hooked bool) {
	testnet.Require(t, tracer.Supported)
	r.suite.needsMain(t)
	kills := []breakage{{tracer.Kill, cni.Del}}
	verbs := []cni.Command{cni.Add, cni.Del}
	if r.newest(cni.GC) {
		kills, verbs = append(kills, breakage{tracer.Kill, cni.GC}), append(verbs, cni.GC)
	}
	for _, verb := range verbs {
		t.Run("system calls of "+string(verb), func(t *testing.T) {
			s := &callSweep{Runtime: r.with(t), verb: verb, kills: kills, hooked: hooked}
			s.run()
		})
	}
}

// needsMain ends the test if the test binary cannot run as the plugin.
func (s *Suite) needsMain(t testing.TB) {
	t.Helper()
	name := s.Plugin.Name
	if !slices.ContainsFunc(linkedIn, func(d plugin.Definition) bool { return d.Name == name }) {
		t.Fatalf("the test binary cannot run as the plugin %s: call plugintest.Main(m, definition of %s, delegates...) "+
			"in TestMain", name, name)
	}
}

// others are the faults after which the process goes on.
var others = []breakage{{tracer.Fail, cni.Del}, {tracer.Terminate, cni.Del}, {tracer.Lose, cni.Del}}

// callSweep breaks the system calls of one verb.
type callSweep struct {
	*Runtime
	verb     cni.Command
	kills    []breakage
	hooked   bool          // each change has already failed in this process
	clean    string        // the state without an attachment
	host     string        // the state of the host and Dir, without the container
	injected int           // number of injected faults
	took     time.Duration // by the verb without a fault, which shows the speed of the host
}

func (s *callSweep) run() {
	s.t.Helper()
	s.Remove(broken)
	s.host = s.objects(s.Host)
	s.Container(broken)
	s.clean = s.objects(s.Spaces()...)
	settings := s.settings()
	changes := s.undisturbed()
	few := !s.hooked && len(changes)*(len(s.kills)+len(others)) <= enough
	for n := range changes {
		tried := []breakage{s.kills[n%len(s.kills)], others[n%len(others)]}
		if few {
			tried = slices.Concat(others, s.kills)
		}
		for _, b := range tried {
			if b.effect != tracer.Lose || changes[n].Reply {
				s.attempt(n, b)
			}
		}
	}
	switch {
	case len(changes) == 0:
		s.t.Logf("%s changes nothing, so there is no fault to inject", s.verb)
	case s.injected == 0:
		s.t.Errorf("no fault was injected at %d system calls: the plugin makes different calls in each run", len(changes))
	default:
		s.t.Logf("%d system calls that change something, %d faults injected", len(changes),
			s.injected)
	}
	s.same(settings, s.settings())
}

// settings returns the lines of the state that are settings below /proc/sys/net. Reading them takes
// long, so the suite compares them once, after all faults. Other lines contain interface indexes,
// which differ after GC.
func (r *Runtime) settings() string {
	return strings.Join(slices.DeleteFunc(strings.Split(testnet.Snapshot(r.t, r.Spaces(), r.Dir), "\n"), func(line string) bool {
		return !strings.Contains(line, " sysctl ")
	}), "\n")
}

// broken is the container of the attachment that faults hit.
const broken = "c"

// undisturbed calls the verb without a fault and returns its changes.
func (s *callSweep) undisturbed() []tracer.Change {
	s.t.Helper()
	q := s.breakable(s.verb)
	before := s.objects(s.Spaces()...)
	began := time.Now()
	run := s.traced(q, tracer.Fault{})
	s.took = time.Since(began)
	if run.Code != 0 || run.Killed {
		s.t.Fatalf("%s, as a process under ptrace: exit status %d\n%s%s", s.verb, run.Code,
			run.Stdout, run.Stderr)
	}
	own := 0
	reported := map[string]bool{}
	for _, c := range run.Changes {
		if c.Name != tracer.Result {
			own++
		}
		if outside := c.Path != "" && !under(c.Path, s.Dir) && !under(c.Path, "/proc"); outside &&
			!reported[c.Path] {
			reported[c.Path] = true
			s.t.Errorf("%s changes %s, where the suite does not look for leftovers: move the file into the directory "+
				"that Suite.Rewrite gets", s.verb, c.Path)
		}
	}
	if changed := testnet.Diff(before, s.objects(s.Spaces()...)); own == 0 && changed != "" {
		s.t.Fatalf("%s changes the state without a system call that the suite can break; report this to Tenon:\n%s",
			s.verb, changed)
	}
	s.recover(cni.Del, fmt.Sprintf("after %s without a fault", s.verb))
	return run.Changes
}

func under(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

// attempt breaks change number n of the verb, and looks for leftovers.
func (s *callSweep) attempt(n int, b breakage) {
	s.t.Helper()
	run := s.traced(s.breakable(s.verb), tracer.Fault{Effect: b.effect, N: n})
	what := fmt.Sprintf("after %s", s.verb)
	if run.Hit {
		s.injected++
		what = fmt.Sprintf("after %s, where %s system call %d (%s)", s.verb, b, n+1,
			run.Changes[n].Name)
	}
	switch failed := run.Code != 0; {
	case run.Killed && b.effect == tracer.Terminate:
		s.t.Fatalf("%s: the signal ended the process. Package plugin handles SIGTERM, so that %s ends with "+
			"an error object (ERR-01): do not call signal.Reset or signal.Ignore\n%s", what, s.verb, run.Stderr)
	case run.Killed:
	case failed && !wellFormed(run):
		s.t.Fatalf("%s: exit status %d without an error object on standard output (ERR-01): %q\n%s",
			what, run.Code, run.Stdout, run.Stderr)
	case failed && s.verb == cni.Add && b.effect != tracer.Lose: // a plugin cannot undo what it does not know
		s.expect(s.clean, s.Spaces(),
			what+": ADD failed and must leave nothing (PL-ADD-10), but the state has changed")
	case !failed && s.verb == cni.Del:
		s.expect(s.clean, s.Spaces(),
			what+": DEL succeeded and must leave nothing (PL-DEL-01), but the state has changed")
	}
	s.recover(b.recovery, what)
}

// wellFormed reports whether a failed process printed an error object, or failed because it could
// not print.
func wellFormed(run *tracer.Run) bool {
	_, err := cni.DecodeErrorStrict(run.Stdout)
	return err == nil || run.Hit && slices.ContainsFunc(run.Changes,
		func(c tracer.Change) bool { return c.Name == tracer.Result })
}

// recover makes the call with which a runtime cleans up, and expects that nothing is left. After
// GC, recover removes the namespace, because GC may leave its contents to the kernel (PL-GC-03).
func (s *callSweep) recover(verb cni.Command, what string) {
	s.t.Helper()
	if s.verb == cni.Add {
		delete(s.prev, broken) // a runtime has no result of a broken ADD
	}
	q := s.Request(cni.Del, broken)
	if verb == cni.GC {
		q = s.Collect()
	}
	if _, err := s.Do(s.t.Context(), q); err != nil {
		s.t.Errorf("%s: the following %s must clean up (%s), but fails: %v", what, verb,
			cleansUp[verb], err)
	}
	delete(s.prev, broken)
	what = fmt.Sprintf("%s: the following %s must leave nothing (%s), but the state has changed",
		what, verb, cleansUp[verb])
	if verb == cni.Del {
		s.expect(s.clean, s.Spaces(), what)
		return
	}
	s.Remove(broken)
	s.expect(s.host, []*Namespace{s.Host}, what)
	s.Container(broken)
	s.clean = s.objects(s.Spaces()...)
}

// cleansUp names the requirements on the verbs that clean up.
var cleansUp = map[cni.Command]string{cni.Del: "PL-DEL-01, PL-DEL-05", cni.GC: "PL-GC-01"}

// expect ends the test unless the kernel returns to the state before, which it may do in the
// background.
func (s *callSweep) expect(before string, spaces []*Namespace, complaint string) {
	s.t.Helper()
	limit := max(10*time.Second, 10*s.took)
	diff := testnet.Diff(before, s.objects(spaces...))
	for end := time.Now().Add(limit); diff != "" &&
		time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		diff = testnet.Diff(before, s.objects(spaces...))
	}
	if diff != "" {
		s.t.Fatalf("%s:\n%s", complaint, diff)
	}
}

// traced runs the plugin as a process with a fault.
func (r *Runtime) traced(q Request, f tracer.Fault) *tracer.Run {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.bin, r.suite.Plugin.Name))
	cmd.Env = append(os.Environ(), q.Environ()...)
	stdin, run := r.marshal(q.Conf), (*tracer.Run)(nil)
	err := r.Host.Run(func() (err error) {
		run, err = tracer.Trace(cmd, stdin, f)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}
