package invoke_test

import (
	"context"
	"io"
	"testing"

	"github.com/tenon-cni/tenon/invoke"
)

// Linked passes its Process to the registered function, and returns it without one.
func TestLinked(t *testing.T) {
	// Not parallel: it registers a function for the program.
	t.Cleanup(func() { invoke.RegisterLinked(nil) })
	want := invoke.Process{Stderr: io.Discard}
	if got, ok := invoke.Linked(want).(invoke.Process); !ok || got.Stderr != want.Stderr {
		t.Errorf("without a function: %#v", got)
	}
	var passed invoke.Process
	for _, answer := range []string{"first", "second"} {
		invoke.RegisterLinked(func(p invoke.Process) invoke.Caller {
			passed = p
			return invoke.Local{"x": func(context.Context, invoke.Call) ([]byte, bool) {
				return []byte(answer), true
			}}
		})
		reply, err := invoke.Linked(want).Call(t.Context(), invoke.Call{Path: "/bin/x"})
		if err != nil || string(reply.Stdout) != answer || passed.Stderr != want.Stderr {
			t.Errorf("%s function: %s, %v, passed %#v", answer, reply.Stdout, err, passed)
		}
	}
	invoke.RegisterLinked(nil)
	if _, ok := invoke.Linked(want).(invoke.Process); !ok {
		t.Error("nil does not remove the function")
	}
}
