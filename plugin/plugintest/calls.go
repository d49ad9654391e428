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
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
	"github.com/tenon-cni/tenon/plugin"
)

// allFaults asks for every fault at every system call, however long the tests take.
var allFaults = os.Getenv("TENON_FAULTS") == "all"

// enough is the number of faults of a verb up to which the suite tries all. A plugin with more changes gets one fault at
// each change, the kinds in turn, and so does one whose changes have failed through the hook already.
const enough = 60

// breakage is a fault, and the call by which a runtime recovers from it.
type breakage struct {
	effect   tracer.Effect
	recovery cni.Command
}

func (b breakage) String() string {
	if b.effect == tracer.Kill {
		return "the process was killed before"
	}
	return "an error was returned by"
}

// calls runs the plugin as a process and breaks it at each system call with which a verb changes something outside the
// process: a netlink message, a write to a file, a rename, the start of a program. It needs no help from the plugin.
// PL-ADD-10, PL-DEL-03, PL-GC-01
func (r *Runtime) calls(t *testing.T, hooked bool) {
	testnet.Require(t, tracer.Supported)
	r.suite.needsMain(t)
	breakages := []breakage{{tracer.Fail, cni.Del}, {tracer.Kill, cni.Del}}
	verbs := []cni.Command{cni.Add, cni.Del}
	if r.newest(cni.GC) {
		breakages, verbs = append(breakages, breakage{tracer.Kill, cni.GC}), append(verbs, cni.GC)
	}
	for _, verb := range verbs {
		t.Run("system calls of "+string(verb), func(t *testing.T) {
			s := &callSweep{Runtime: r.with(t), verb: verb, breakages: breakages, hooked: hooked}
			s.run()
		})
	}
}

// needsMain ends the test unless the test binary can run as the plugin.
func (s *Suite) needsMain(t testing.TB) {
	t.Helper()
	name := s.Plugin.Name
	if !slices.ContainsFunc(linkedIn, func(d plugin.Definition) bool { return d.Name == name }) {
		t.Fatalf("the test binary cannot run as the plugin %s: call plugintest.Main(m, definition of %s, delegates...) "+
			"in TestMain", name, name)
	}
}

// callSweep breaks the system calls of one verb.
type callSweep struct {
	*Runtime
	verb      cni.Command
	breakages []breakage
	hooked    bool   // each change has failed before, in this process
	clean     string // the state without an attachment
	host      string // that of the host and the directory, without the container
	injected  int    // faults that took place
}

func (s *callSweep) run() {
	s.t.Helper()
	s.Remove(broken)
	s.host = s.objects(s.Host)
	s.Container(broken)
	s.clean = s.objects(s.Spaces()...)
	settings := settingsOf(s.State())
	changes := s.undisturbed()
	list := s.breakages
	for n := 0; n < len(changes); n += step() {
		tried := list
		if (s.hooked || len(changes)*len(list) > enough) && !allFaults {
			tried = list[n%len(list):][:1]
		}
		for _, b := range tried {
			s.attempt(n, b)
		}
	}
	switch {
	case len(changes) == 0:
		s.t.Logf("%s changes nothing: there is no fault to inject", s.verb)
	case s.injected == 0:
		s.t.Errorf("none of the faults at %d system calls took place: the plugin makes other calls in each run", len(changes))
	default:
		s.t.Logf("%d system calls that change something, %d faults injected", len(changes), s.injected)
	}
	s.same(settings, settingsOf(s.State()))
}

// settingsOf returns the lines of a state that are settings below /proc/sys/net. They take long to read, so the suite looks
// at them once, after all faults. Other lines name the indexes of interfaces, which differ after GC.
func settingsOf(state string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(state, "\n"), func(line string) bool {
		return !strings.Contains(line, " sysctl ")
	}), "\n")
}

// broken is the container whose attachment the faults hit.
const broken = "c"

// undisturbed makes the verb without a fault and returns its changes.
func (s *callSweep) undisturbed() []tracer.Change {
	s.t.Helper()
	q := s.breakable(s.verb)
	before := s.objects(s.Spaces()...)
	run := s.traced(q, tracer.Fault{})
	if run.Code != 0 || run.Killed {
		s.t.Fatalf("%s, as a process under ptrace: exit status %d\n%s%s", s.verb, run.Code, run.Stdout, run.Stderr)
	}
	own := 0
	reported := map[string]bool{}
	for _, c := range run.Changes {
		if c.Name != tracer.Result {
			own++
		}
		if outside := c.Path != "" && !under(c.Path, s.Dir) && !under(c.Path, "/proc"); outside && !reported[c.Path] {
			reported[c.Path] = true
			s.t.Errorf("%s changes %s, where the suite does not look for leftovers: let Suite.Rewrite move the file to "+
				"the directory it is given", s.verb, c.Path)
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

// attempt breaks the verb once, at change number n, and looks for leftovers.
func (s *callSweep) attempt(n int, b breakage) {
	s.t.Helper()
	run := s.traced(s.breakable(s.verb), tracer.Fault{Effect: b.effect, N: n})
	what := fmt.Sprintf("after %s", s.verb)
	if run.Hit {
		s.injected++
		what = fmt.Sprintf("after %s, where %s system call %d (%s)", s.verb, b, n+1, run.Changes[n].Name)
	}
	switch failed := run.Code != 0; {
	case run.Killed:
	case failed && !wellFormed(run):
		s.t.Fatalf("%s: exit status %d without an error object on standard output (ERR-01): %q\n%s",
			what, run.Code, run.Stdout, run.Stderr)
	case failed && s.verb == cni.Add:
		s.expect(s.clean, s.Spaces(), what+": ADD failed and must leave nothing (PL-ADD-10), but the state has changed")
	case !failed && s.verb == cni.Del:
		s.expect(s.clean, s.Spaces(), what+": DEL succeeded and must leave nothing (PL-DEL-01), but the state has changed")
	}
	s.recover(b.recovery, what)
}

// wellFormed reports whether a process that failed printed an error object, or failed because it could not print.
func wellFormed(run *tracer.Run) bool {
	_, err := cni.DecodeErrorStrict(run.Stdout)
	return err == nil || run.Hit && slices.ContainsFunc(run.Changes, func(c tracer.Change) bool { return c.Name == tracer.Result })
}

// recover makes the call with which a runtime cleans up, and expects that nothing is left. GC may rely on the end of the
// namespace (PL-GC-03).
func (s *callSweep) recover(verb cni.Command, what string) {
	s.t.Helper()
	if s.verb == cni.Add {
		delete(s.prev, broken) // a runtime has no result of an ADD that was broken
	}
	q := s.Request(cni.Del, broken)
	if verb == cni.GC {
		q = s.Collect()
	}
	if _, err := s.Do(s.t.Context(), q); err != nil {
		s.t.Errorf("%s: the following %s must clean up (%s), but fails: %v", what, verb, cleansUp[verb], err)
	}
	delete(s.prev, broken)
	what = fmt.Sprintf("%s: the following %s must leave nothing (%s), but the state has changed", what, verb, cleansUp[verb])
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

// expect ends the test unless the state is what it was, as soon as the kernel has finished its work in the background.
func (s *callSweep) expect(before string, spaces []*Namespace, complaint string) {
	s.t.Helper()
	limit := 10 * time.Second
	if sampled {
		limit = time.Minute
	}
	diff := testnet.Diff(before, s.objects(spaces...))
	for end := time.Now().Add(limit); diff != "" && time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		diff = testnet.Diff(before, s.objects(spaces...))
	}
	if diff != "" {
		s.t.Fatalf("%s:\n%s", complaint, diff)
	}
}

// traced runs the plugin as a process, under a fault.
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
