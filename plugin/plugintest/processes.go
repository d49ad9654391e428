package plugintest

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

// processes makes the same calls in this process, in processes of their own, and linked into
// another program. The output must be equal except for times and for MAC addresses that the kernel
// chooses.
func processes(_ *testing.T, r *Runtime) {
	here, misplaced := r.transcript(), r.misplaced()
	r.Exec = true
	if _, err := r.Do(r.t.Context(),
		Request{Env: cni.Env{Command: cni.VersionCommand}}); err != nil {
		r.t.Fatalf("the test binary does not run as a plugin; call plugintest.Main in TestMain: %v",
			err)
	}
	if diff := cmp.Diff(here, r.transcript()) + cmp.Diff(misplaced, r.misplaced()); diff != "" {
		r.t.Errorf("output in one process (-) and in many (+) differs; a plugin must not keep state in the process (LIF-14): %s", diff)
	}
	r.Exec, r.Linked = false, true
	if diff := cmp.Diff(here, r.transcript()); diff != "" {
		r.t.Errorf("output in a process (-) and linked into a runtime (+) differs (LIF-14): %s",
			diff)
	}
}

// transcript makes valid and invalid calls of every verb, and returns their output. It starts with
// an empty directory, so that each run allocates the same addresses.
func (r *Runtime) transcript() []string {
	if err := errors.Join(os.RemoveAll(r.Dir), os.Mkdir(r.Dir, 0o755)); err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	print := func(q Request) { lines = append(lines, r.line(q)) }
	ask := func(verb cni.Command, container string, change func(*Request)) {
		q := r.Request(verb, container)
		if change != nil {
			change(&q)
		}
		print(q)
	}
	print(Request{Env: cni.Env{Command: cni.VersionCommand}, Conf: object{"cniVersion": "0.4.0"}})
	print(Request{Env: cni.Env{Command: cni.Status, Path: r.bin}, Conf: r.Conf})
	r.Add("c")
	ask(cni.Add, "c", nil)
	ask(cni.Check, "c", nil)
	ask(cni.Check, "c", func(q *Request) { delete(q.Conf, "prevResult") })
	ask(cni.Check, "c", func(q *Request) { q.Conf["prevResult"] = "x" })
	ask(cni.Add, "d", nil)
	ask(cni.Del, "d", nil)
	ask(cni.Add, "d", func(q *Request) { q.Stdin = []byte("{") })
	ask(cni.Add, "d", func(q *Request) { q.Conf["cniVersion"] = "9.9.9" })
	ask(cni.Add, "d", func(q *Request) { q.IfName, q.Netns = "", "" })
	ask(cni.Add, "d", func(q *Request) { q.Netns = r.Host.Path() })
	ask(cni.Add, "d", func(q *Request) { q.Netns = "/absent" })
	ask(cni.Del, "d", nil)
	print(r.Collect("c"))
	ask(cni.Check, "c", nil)
	ask("NOPE", "d", nil)
	r.Del("c")
	return lines
}

// misplaced makes calls with a CNI_PATH that contains no plugins, and returns their output. It does
// not apply to linked plugins.
func (r *Runtime) misplaced() []string {
	add, del := r.Request(cni.Add, "d"), r.Request(cni.Del, "d")
	add.Path, del.Path = "/absent", ""
	return []string{r.line(add), r.line(del)}
}

// line makes a call and returns its output without the parts that differ in each run.
func (r *Runtime) line(q Request) string {
	out, err := r.Do(r.t.Context(), q)
	line := fmt.Sprintf("%s of %s: %s", q.Command, q.ContainerID, out)
	if e := cni.AsError(err); e != nil {
		line += fmt.Sprintf("code %d, message %q, details %q", e.Code, e.Msg, e.Details)
	}
	return differing.ReplaceAllString(line, "…")
}

// differing matches MAC addresses, times (RFC 3339) and durations in messages.
var differing = regexp.MustCompile(`(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\bfor \d+s`)
