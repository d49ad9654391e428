//go:build unix

package invoke_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	tenon "github.com/tenon-cni/tenon/invoke"
)

// A plugin gets the request, the exact environment, and no arguments.
func TestRawExecSurroundings(t *testing.T) {
	t.Setenv("FOO", "of this process")
	path := plugin(t, "state")
	for name, env := range map[string][]string{
		"variables": {"A=1", "CNI_COMMAND=X"}, "none": {}, "verb only": {"CNI_COMMAND=ADD"},
	} {
		out, err := new(invoke.RawExec).ExecPlugin(t.Context(), path, []byte("a request"), env)
		if err != nil {
			t.Fatal(err)
		}
		got := decodeState(t, out)
		wantEqual(t, name, got.Env, env)
		wantEqual(t, name, append(got.Args, got.Stdin), []string{path, "a request"})
		if !got.Leads {
			t.Errorf("%s: the plugin does not lead a process group", name)
		}
	}
	out, err := new(invoke.RawExec).ExecPlugin(t.Context(), path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := os.Environ()
	slices.Sort(want)
	wantEqual(t, "nil", decodeState(t, out).Env, want)
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A trace is added to an exact environment and to the environment of this process.
func TestRawExecTrace(t *testing.T) {
	t.Setenv("FOO", "of this process")
	t.Setenv("TRACEPARENT", "old")
	t.Setenv("BAGGAGE", "old")
	path := plugin(t, "state")
	full := tenon.Trace{Parent: parent, State: "a=b", Baggage: "c=d"}
	for _, row := range []struct {
		name  string
		trace tenon.Trace
		env   []string
		want  []string
	}{
		{"exact environment", full, []string{"A=1", "TRACESTATE=old"},
			[]string{"A=1", "BAGGAGE=c=d", "TRACEPARENT=" + parent, "TRACESTATE=a=b"}},
		{"without state", tenon.Trace{Parent: parent}, []string{"A=1"},
			[]string{"A=1", "TRACEPARENT=" + parent}},
		{"baggage without a span is dropped", tenon.Trace{Baggage: "c=d"}, []string{"A=1"},
			[]string{"A=1"}},
		{"environment of this process", full, nil, []string{"BAGGAGE=c=d", "FOO=of this process",
			"TRACEPARENT=" + parent, "TRACESTATE=a=b"}},
	} {
		ctx := tenon.WithTrace(t.Context(), row.trace)
		out, err := new(invoke.RawExec).ExecPlugin(ctx, path, nil, row.env)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(decodeState(t, out).Env, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return !slices.Contains([]string{"A", "FOO", "TRACEPARENT", "TRACESTATE", "BAGGAGE"}, name)
		})
		wantEqual(t, row.name, got, row.want)
	}
}

// The error of a failed plugin, and the standard error that is passed on.
func TestRawExecErrors(t *testing.T) {
	t.Parallel()
	const none = "netplugin failed with no error message: "
	for name, want := range map[string]struct {
		err    types.Error
		stderr string
	}{
		"fails":  {types.Error{Code: 11, Msg: "busy", Details: "wait"}, "why\n"},
		"nocode": {types.Error{Msg: "one"}, ""},
		"nomsg":  {types.Error{Code: 7, Msg: none + "exit status 2", Details: "d"}, ""},
		"empty":  {types.Error{Msg: none + "exit status 1"}, ""},
		"null":   {types.Error{Msg: `netplugin failed: "why\n": exit status 1`}, ""},
		"text": {types.Error{Msg: `netplugin failed but error parsing its diagnostic message ` +
			`"no bridge\n": invalid character 'o' in literal null (expecting 'u')`}, "why\n"},
		"badcode": {types.Error{Msg: `netplugin failed but error parsing its diagnostic message ` +
			`"{\"code\":-1,\"msg\":\"x\"}": json: cannot unmarshal number -1 into Go struct field ` +
			`Error.code of type uint`}, ""},
		"grumble": {types.Error{Msg: `netplugin failed: "some text\n": exit status 3`}, ""},
		"silent":  {types.Error{Msg: none + "exit status 3"}, ""},
		"dies":    {types.Error{Msg: none + "signal: killed"}, ""},
		"flood":   {types.Error{Msg: none + "more than 16 MiB on standard output"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			out, err := (&invoke.RawExec{Stderr: &stderr}).ExecPlugin(t.Context(), plugin(t, name), nil,
				[]string{"CNI_COMMAND=ADD"})
			got, ok := err.(*types.Error)
			if !ok || *got != want.err || out != nil {
				t.Errorf("got  %q, %#v\nwant %#v", out, err, want.err)
			}
			wantEqual(t, "standard error", stderr.String(), want.stderr)
		})
	}
	for name, want := range map[string]string{
		"/absent/x": none + "fork/exec /absent/x: no such file or directory",
		"/":         none + "fork/exec /: permission denied",
	} {
		_, err := new(invoke.RawExec).ExecPlugin(t.Context(), name, nil, nil)
		wantEqual(t, name, text(err), want)
	}
}

func TestRawExecStderr(t *testing.T) {
	t.Parallel()
	var stderr writes
	run := func(name string, stderr io.Writer) ([]byte, error) {
		e := &invoke.RawExec{Stderr: stderr}
		return e.ExecPlugin(t.Context(), plugin(t, name), nil, nil)
	}
	if _, err := run("ok", &stderr); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "standard error", []string(stderr), []string{"a line\n"})
	if out, err := run("ok", nil); err != nil || len(out) == 0 {
		t.Errorf("without a writer: %s, %v", out, err)
	}
	stderr = nil
	if _, err := run("chatty", &stderr); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(stderr, "")
	if len(all) != 3<<20+3 || !strings.HasSuffix(all, "xEND") || len(stderr) < 2 {
		t.Errorf("%d bytes in %d writes", len(all), len(stderr))
	}
	_, err := run("shouts", nil)
	if got := text(err); !strings.HasPrefix(got, `netplugin failed: "xxx`) ||
		!strings.HasSuffix(got, `xEND": exit status 1`) || len(got) > 5000 {
		t.Errorf("the error has %d bytes: %.40s", len(got), got)
	}
}

// writes records the calls of Write.
type writes []string

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, string(b))
	return len(b), nil
}

// The end of the context ends the plugin.
func TestRawExecContext(t *testing.T) {
	t.Parallel()
	path := plugin(t, "sleeps")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(path + ".started"); err == nil {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := new(invoke.RawExec).ExecPlugin(ctx, path, nil, nil)
	if got := text(err); !strings.HasPrefix(got, "netplugin failed with no error message: signal: ") {
		t.Errorf("stopped: %s", got)
	}
	_, err = new(invoke.RawExec).ExecPlugin(ctx, path, nil, nil)
	wantEqual(t, "not started", text(err), "netplugin failed with no error message: context canceled")
	late, done := context.WithDeadline(t.Context(), time.Now())
	defer done()
	_, err = new(invoke.RawExec).ExecPlugin(late, path, nil, nil)
	wantEqual(t, "deadline", text(err),
		"netplugin failed with no error message: context deadline exceeded")
}

// A binary that is open for writing is tried again; in the end the error says why.
func TestRawExecBusy(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"soon ready": false, "stays busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ok")
			b, err := os.ReadFile(executable(t))
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
			if stays {
				defer f.Close()
			} else {
				time.AfterFunc(100*time.Millisecond, func() { f.Close() })
			}
			out, err := new(invoke.RawExec).ExecPlugin(t.Context(), path, nil, nil)
			want := ""
			if stays {
				want = "netplugin failed with no error message: fork/exec " + path + ": text file busy"
			}
			wantEqual(t, "error", text(err), want)
			if (len(out) == 0) != stays {
				t.Errorf("output %q", out)
			}
		})
	}
}

// RawExec calls plugins through the registered caller and returns its output or error.
func TestRawExecLinked(t *testing.T) {
	// Not parallel: it registers a caller for the program.
	defer tenon.RegisterLinked(nil)
	env := []string{"A=1", "CNI_COMMAND=ADD", "CNI_CONTAINERID=old", "CNI_CONTAINERID=c",
		"CNI_PATH=/a"}
	var got tenon.Call
	tenon.RegisterLinked(func(p tenon.Process) tenon.Caller {
		wantEqual(t, "environment of delegates", p.Base, env)
		return tenon.Local{"x": func(_ context.Context, c tenon.Call) ([]byte, bool) {
			got = c
			_, _ = p.Stderr.Write([]byte("a line\n"))
			return []byte(`{"code":7,"msg":"m"}`), string(c.Stdin) == "works"
		}}
	})
	for _, stdin := range []string{"works", "fails"} {
		var stderr bytes.Buffer
		out, err := (&invoke.RawExec{Stderr: &stderr}).ExecPlugin(t.Context(), "/a/x", []byte(stdin), env)
		wantEqual(t, "standard error", stderr.String(), "a line\n")
		wantEqual(t, "call",
			[]string{got.Path, string(got.Env.Command), got.Env.ContainerID, got.Env.Path},
			[]string{"/a/x", "ADD", "c", "/a"})
		if stdin == "works" && (err != nil || len(out) == 0) {
			t.Errorf("%s: %s, %v", stdin, out, err)
		}
		var e *types.Error
		if stdin == "fails" && (!errors.As(err, &e) || *e != types.Error{Code: 7, Msg: "m"}) {
			t.Errorf("%s: %#v", stdin, err)
		}
	}
}
