package invoke_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// A plugin in this process and a process with the same output give equal replies and errors.
func TestLocalEqualsProcess(t *testing.T) {
	t.Parallel()
	for plugin, h := range map[string]invoke.Handler{
		"ok":     invoke.Print(`{"cniVersion":"1.1.0"}`),
		"fails":  fails(`{"code":11,"msg":"busy","details":"wait"}`),
		"text":   fails("cannot find \xff the \x00 bridge\n"),
		"twice":  fails(`{"code":7,"msg":"one"}{"code":7,"msg":"two"}`),
		"nocode": fails(`{"msg":"one"}`),
	} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			c := add(filepath.Join(pluginDir(t, plugin), plugin))
			process, processErr := invoke.Process{Stderr: io.Discard}.Call(t.Context(), c)
			local, localErr := invoke.Local{plugin: h}.Call(t.Context(), c)
			if diff := cmp.Diff(string(process.Stdout), string(local.Stdout)); diff != "" {
				t.Error(diff)
			}
			var p, l *invoke.Error
			if errors.As(processErr, &p) != errors.As(localErr, &l) {
				t.Fatalf("process %v, local %v", processErr, localErr)
			}
			if p == nil {
				return
			}
			p.Stderr = nil // a handler has no standard error
			if diff := cmp.Diff(p, l, cmp.Comparer(func(a, b *cni.Error) bool {
				return a.Code == b.Code && a.Msg == b.Msg && a.Details == b.Details
			})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func fails(stdout string) invoke.Handler {
	return func(context.Context, invoke.Call) ([]byte, bool) { return []byte(stdout), false }
}

func TestLocalGetsTheCall(t *testing.T) {
	t.Parallel()
	c := add("/nowhere/x")
	var env cni.Env
	var stdin []byte
	l := invoke.Local{"x": func(_ context.Context, c invoke.Call) ([]byte, bool) {
		e, b := c.Env, c.Stdin
		env, stdin = e, b
		return nil, true
	}}
	if _, err := l.Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, invoke.Call{Path: c.Path, Env: env, Stdin: stdin}); diff != "" {
		t.Error(diff)
	}
}

func TestLocalUnknown(t *testing.T) {
	t.Parallel()
	_, err := invoke.Local{}.Call(t.Context(), add("/nowhere/x"))
	if want := `7 x ADD: plugin "x" is not part of this program`; describe(err) != want {
		t.Errorf("got  %s\nwant %s", describe(err), want)
	}
}

func TestLocalContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	called := 0
	l := invoke.Local{"x": func(ctx context.Context, _ invoke.Call) ([]byte, bool) {
		called++
		cancel()
		<-ctx.Done()
		return []byte(`{"code":999,"msg":"interrupted"}`), false
	}}
	for range 2 { // before the second call the context has ended
		_, err := l.Call(ctx, add("/nowhere/x"))
		if !errors.Is(err, context.Canceled) || cni.CodeOf(err) != cni.CodeInternal {
			t.Errorf("got %s", describe(err))
		}
	}
	if called != 1 {
		t.Errorf("called %d times", called)
	}
}

// Auto calls a plugin in this process only if its binary is this program and has a handler.
func TestAuto(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "ok")
	copyBusy(t, other).Close()
	linked := filepath.Join(pluginDir(t, "ok", "fails"), "ok")
	// a hard link needs the same file system
	sameFS, err := os.MkdirTemp(filepath.Dir(executable(t)), "hard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sameFS) })
	hard := filepath.Join(sameFS, "ok")
	if err := os.Link(executable(t), hard); err != nil {
		t.Fatal(err)
	}
	here := invoke.Local{"ok": invoke.Print("in process")}
	for _, tt := range []struct {
		name string
		auto invoke.Auto
		path string
		want string
	}{
		{"hard link to this program", invoke.Auto{Local: here}, hard, "in process"},
		{"symbolic link to this program", invoke.Auto{Local: here}, linked, "in process"},
		{"a copy is a different program", invoke.Auto{Local: here}, other,
			`{"cniVersion":"1.1.0"}`},
		{"no such handler", invoke.Auto{}, linked, `{"cniVersion":"1.1.0"}`},
		{"disabled", invoke.Auto{Local: here, AlwaysExec: true}, linked, `{"cniVersion":"1.1.0"}`},
	} {
		tt.auto.Process.Stderr = io.Discard
		reply, err := tt.auto.Call(t.Context(), add(tt.path))
		if got := string(reply.Stdout); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	_, err = invoke.Auto{Local: here}.Call(t.Context(), add("/nowhere/ok"))
	if cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("missing file: %s", describe(err))
	}
}
