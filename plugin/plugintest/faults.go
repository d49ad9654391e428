package plugintest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

var errFault = errors.New("injected fault")

// times returns the number of repetitions: a fifth in short mode.
func times(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// fault fails one change that the plugin makes through the kernel package of Tenon.
type fault struct {
	after int    // number of changes that succeed before the fault; negative for no fault
	made  int    // number of changes so far
	op    string // the change that failed, or empty
}

// do calls the plugin in this process with the fault. Only do knows how a fault reaches the plugin.
func (f *fault) do(r *Runtime, q Request) (json.RawMessage, error) {
	return r.Watched(func(op string) error {
		f.made++
		if f.made-1 != f.after {
			return nil
		}
		f.op = op
		return errFault
	}).Do(r.t.Context(), q)
}

// faults breaks the plugin at each change of a verb. After ADD nothing may be left; after DEL and
// GC the next call must remove the rest.
//
// A plugin that uses Tenon's kernel package is called in this process, and its changes fail one
// after another; the error must name the change. Every plugin is also run as a process with broken
// system calls.
// PL-ADD-10, R-48
func faults(t *testing.T, r *Runtime) {
	r.Container(broken)
	hooked := r.hooked()
	if hooked {
		r.hooks(t)
	}
	if !hooked || r.first && !testing.Short() {
		r.calls(t, hooked)
	}
}

// hooked reports whether ADD makes changes through Tenon's kernel package.
func (r *Runtime) hooked() bool {
	r.t.Helper()
	f := &fault{after: -1}
	if _, err := f.do(r, r.Request(cni.Add, broken)); err != nil {
		r.t.Fatalf("ADD: %v", err)
	}
	r.Del(broken)
	return f.made > 0
}

// hooks fails the changes of each verb, one at a time.
func (r *Runtime) hooks(t *testing.T) {
	for _, verb := range []cni.Command{cni.Add, cni.Del, cni.GC} {
		if verb != cni.GC || r.newest(cni.GC) {
			t.Run(string(verb), func(t *testing.T) { r.with(t).faultsOf(verb) })
		}
	}
}

// breakable returns the request of a verb that faults break. Unless the verb is ADD, breakable
// attaches the container.
func (r *Runtime) breakable(verb cni.Command) Request {
	r.t.Helper()
	if verb != cni.Add {
		r.Add(broken)
	}
	if verb == cni.GC {
		return r.Collect()
	}
	return r.Request(verb, broken)
}

func (r *Runtime) faultsOf(verb cni.Command) {
	before, settings := r.objects(r.Spaces()...), r.settings()
	for n := 0; ; n++ {
		q := r.breakable(verb)
		f := &fault{after: n}
		_, err := f.do(r, q)
		if f.op == "" {
			if err != nil {
				r.t.Fatalf("%s: %v", verb, err)
			}
			r.t.Logf("%d changes", n)
			r.Del(broken)
			r.same(settings, r.settings())
			return
		}
		r.checkFault(f, err)
		if verb != cni.Add {
			r.Must(q)
		}
		if verb == cni.GC { // GC may leave the contents of the namespace, which end with it
			r.Del(broken)
		}
		if r.same(before, r.objects(r.Spaces()...)); r.t.Failed() {
			r.t.Fatalf("after failure of %q: undo the changes before it (PL-ADD-10, PL-DEL-01)",
				f.op)
		}
	}
}

func (r *Runtime) checkFault(f *fault, err error) {
	r.t.Helper()
	switch {
	case err == nil:
		r.t.Errorf("the call succeeds although %q has failed: return the error (ERR-01)", f.op)
	case !strings.Contains(err.Error(), errFault.Error()) || !strings.Contains(err.Error(), f.op):
		r.t.Errorf("the error does not name the change that has failed, %q: wrap it with %%w: %v",
			f.op, err)
	}
}
