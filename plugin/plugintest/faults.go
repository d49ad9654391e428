package plugintest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

var errFault = errors.New("injected fault")

// sampled says that this is a machine on which all takes many times as long (scripts/vm-tests), and which is there for its kernel:
// one example of a suite is enough then, of a suite beside TestSuite what is about the kernel, one member of the configuration
// that is wrong, every eighth change that fails, and a fifth of what is repeated; and the settings below /proc/sys/net, whose
// look-up is most of the work, are not compared.
var sampled = os.Getenv("TENON_SAMPLE") != ""

// times is how often something is repeated.
func times(n int) int {
	if sampled {
		return n / 5
	}
	return n
}

func step() int {
	if sampled {
		return 8
	}
	return 1
}

// fault fails one change.
type fault struct {
	after int    // so many changes succeed before
	op    string // the change that failed, "" as long as none has
}

// context returns a context that carries the fault to the plugin and its delegates.
func (f *fault) context(ctx context.Context) context.Context {
	return kernel.WithHooks(ctx, kernel.Hooks{Fault: func(op string) error {
		f.after--
		if f.after != -1 {
			return nil
		}
		f.op = op
		return errFault
	}})
}

// faults fails each change of a verb once. The error has to name the change. After ADD nothing may be left; after DEL
// and GC the next one has to take away the rest.
// PL-ADD-10, R-48
func faults(t *testing.T, r *Runtime) {
	r.Container("c")
	t.Run("ADD", func(t *testing.T) { r.with(t).faultsOfAdd() })
	t.Run("DEL", func(t *testing.T) {
		r := r.with(t)
		r.faultsOfRemoval(func() Request { return r.Request(cni.Del, "c") })
	})
	if r.newest(cni.GC) {
		t.Run("GC", func(t *testing.T) {
			r := r.with(t)
			r.faultsOfRemoval(func() Request { return r.Collect() })
		})
	}
}

func (r *Runtime) faultsOfAdd() {
	before := r.State()
	for n := 0; ; n += step() {
		f := &fault{after: n}
		_, err := r.Do(f.context(r.t.Context()), r.Request(cni.Add, "c"))
		if f.op == "" {
			if err != nil {
				r.t.Fatalf("ADD: %v", err)
			}
			r.t.Logf("%d changes", n)
			r.Del("c")
			return
		}
		r.checkFault(f, err)
		if r.Unchanged(before); r.t.Failed() {
			r.t.Fatalf("after failure of %q", f.op)
		}
	}
}

func (r *Runtime) faultsOfRemoval(ask func() Request) {
	before := r.State()
	for n := 0; ; n += step() {
		r.Add("c")
		q := ask()
		f := &fault{after: n}
		_, err := r.Do(f.context(r.t.Context()), q)
		if f.op == "" {
			if err != nil {
				r.t.Fatalf("%s: %v", q.Command, err)
			}
			r.t.Logf("%d changes", n)
			r.Del("c")
			return
		}
		r.checkFault(f, err)
		r.Must(q)
		if q.Command == cni.GC { // it may leave what a namespace holds, and ends with it
			r.Del("c")
		}
		if r.Unchanged(before); r.t.Failed() {
			r.t.Fatalf("after failure of %q", f.op)
		}
	}
}

func (r *Runtime) checkFault(f *fault, err error) {
	r.t.Helper()
	switch {
	case err == nil:
		r.t.Errorf("success although %q has failed", f.op)
	case !strings.Contains(err.Error(), errFault.Error()) || !strings.Contains(err.Error(), f.op):
		r.t.Errorf("error does not tell that %q has failed: %v", f.op, err)
	}
}
