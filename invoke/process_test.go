package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
)

// EXE-05, EXE-06, EXE-16, ERR-06, R-10, R-11: outcomes of a plugin, and the errors for them.
func TestProcessOutcome(t *testing.T) {
	t.Parallel()
	const either = "signal: broken pipe or terminated, whichever comes first"
	for _, tt := range []struct{ plugin, want, status string }{
		{"ok", "success", ""},
		{"fails", "11 fails ADD: busy: wait", "exit status 1"},
		{"lies",
			`999 lies ADD: exit status 3 without a usable error object: stdout "{\"cniVersion\":\"1.1.0\",\"ips\":[]}"`, "exit status 3"},
		{"mute", "999 mute ADD: exit status 2 without a usable error object", "exit status 2"},
		{"grumble",
			`999 grumble ADD: exit status 2 without a usable error object: stderr "panic: boom\n\ngoroutine 1 [running]:"`, "exit status 2"},
		{"text",
			`999 text ADD: exit status 1 without a usable error object: stdout "cannot find \xff the \x00 bridge"`, "exit status 1"},
		{"twice",
			`999 twice ADD: exit status 1 without a usable error object: stdout "{\"code\":7,\"msg\":\"one\"}{\"code\":7,\"msg\":\"two\"}"`, "exit status 1"},
		{"nocode",
			`999 nocode ADD: exit status 1 without a usable error object: stdout "{\"msg\":\"one\"}"`, "exit status 1"},
		{"long", `999 long ADD: exit status 1 without a usable error object: stdout "` +
			strings.Repeat("x", 256) + `" … "` +
			strings.Repeat("x", 509) + `END"`, "exit status 1"},
		{"dies", "999 dies ADD: signal: killed without a usable error object", "signal: killed"},
		{"flood", "999 flood ADD: more than 16 MiB on standard output", either},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			_, err := call(t.Context(), t, tt.plugin)
			if got := describe(err); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var e *invoke.Error
			if errors.As(err, &e) && e.Status != tt.status && tt.status != either {
				t.Errorf("status %q, want %q", e.Status, tt.status)
			}
		})
	}
}

// ERR-07: invalid and incomplete error objects. All are reported as failures with a message.
func TestProcessErrorObjects(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"code":42,"msg":"x"}`:                      "42 objects ADD: x",
		`{"cniVersion":"1.0.0","code":50,"msg":"x"}`: "50 objects ADD: x",
		`{"code":0,"msg":"x"}`:                       "0 objects ADD: x",
		`{"code":7}`:                                 "7 objects ADD: error without a message",
		`{"code":7,"msg":"","details":"d"}`:          "7 objects ADD: error without a message: d",
		`{"msg":"x"}`:                                "",
		`{}`:                                         "",
		`null`:                                       "",
		`{"code":"7","msg":"x"}`:                     "",
		`{"code":-1,"msg":"x"}`:                      "",
		`{"code":7.5,"msg":"x"}`:                     "",
		`{"code":1e30,"msg":"x"}`:                    "",
	} {
		if want == "" {
			want = fmt.Sprintf("999 objects ADD: exit status 1 without a usable error object: stdout %q", object)
		}
		c := add(filepath.Join(pluginDir(t, "objects"), "objects"))
		c.Stdin = []byte(object)
		_, err := invoke.Process{Stderr: io.Discard}.Call(t.Context(), c)
		if got := describe(err); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", object, got, want)
		}
		if e := (*invoke.Error)(nil); !errors.As(err, &e) || e.Status != "exit status 1" {
			t.Errorf("%s: %+v", object, err)
		}
	}
}

// ERR-08: an error holds code, message, details, plugin and verb separately.
func TestProcessErrorParts(t *testing.T) {
	t.Parallel()
	_, err := call(t.Context(), t, "fails")
	var e *invoke.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not an *invoke.Error", err)
	}
	want := invoke.Error{
		Plugin: "fails", Command: cni.Add, Status: "exit status 1",
		Stdout: []byte(`{"code":11,"msg":"busy","details":"wait"}`), Stderr: []byte("why\n"),
		Err: &cni.Error{Code: cni.CodeTryAgainLater, Msg: "busy", Details: "wait"},
	}
	if diff := cmp.Diff(want, *e, cmp.Comparer(func(a, b *cni.Error) bool {
		return a.Code == b.Code && a.Msg == b.Msg && a.Details == b.Details
	})); diff != "" {
		t.Error(diff)
	}
}

// EXE-03, EXE-09, EXE-10, ENV-12: environment, arguments, directory and standard input of a plugin.
func TestProcessSurroundings(t *testing.T) {
	// Not parallel: it changes the environment of this process.
	t.Setenv("FOO", "bar")
	t.Setenv("CNI_ARGS", "STALE=1")
	t.Setenv("CNI_NETNS_OVERRIDE", "1")
	t.Setenv("CNI_LOG_LEVEL", "debug") // not a variable of the protocol, but of a plugin (DLG-03)
	path := filepath.Join(pluginDir(t, "state"), "state")
	c := add(path)
	c.Env.ContainerID = "c2"
	reply, err := invoke.Process{}.Call(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got state
	if err := json.Unmarshal(reply.Stdout, &got); err != nil {
		t.Fatal(err)
	}
	vars := slices.DeleteFunc(slices.Clone(got.Env), func(kv string) bool {
		return kv != "FOO=bar" && !strings.HasPrefix(kv, "CNI_")
	})
	slices.Sort(vars)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got.Env = vars
	want := state{
		Args: []string{path},
		Env: []string{
			"CNI_ARGS=", "CNI_COMMAND=ADD", "CNI_CONTAINERID=c2", "CNI_IFNAME=eth0",
			"CNI_LOG_LEVEL=debug",
			"CNI_NETNS=/run/netns/x", "CNI_PATH=" + filepath.Dir(path), "FOO=bar",
		},
		Stdin: string(c.Stdin), Dir: wd, Group: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TRC-01, TRC-02, TRC-03: trace variables take precedence over inherited variables of another
// trace, which are dropped.
func TestProcessEnviron(t *testing.T) {
	t.Setenv("TRACEPARENT", "old")
	t.Setenv("TRACESTATE", "old")
	t.Setenv("BAGGAGE", "old")
	for _, tt := range []struct {
		name  string
		extra []string
		want  []string
	}{
		{"without a span everything passes through", nil,
			[]string{"BAGGAGE=old", "TRACEPARENT=old", "TRACESTATE=old"}},
		{"a span drops the variables of the old one", []string{"TRACEPARENT=new"},
			[]string{"TRACEPARENT=new"}},
		{"a span may have its own state", []string{"TRACEPARENT=new", "TRACESTATE=new"},
			[]string{"TRACEPARENT=new", "TRACESTATE=new"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(pluginDir(t, "state"), "state")
			p := invoke.Process{Environ: func(context.Context) []string { return tt.extra }}
			reply, err := p.Call(t.Context(), add(path))
			if err != nil {
				t.Fatal(err)
			}
			var got state
			if err := json.Unmarshal(reply.Stdout, &got); err != nil {
				t.Fatal(err)
			}
			vars := slices.DeleteFunc(got.Env, func(kv string) bool {
				return !strings.HasPrefix(kv, "TRACE") && !strings.HasPrefix(kv, "BAGGAGE")
			})
			slices.Sort(vars)
			if diff := cmp.Diff(tt.want, vars); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An error holds standard output as printed, unless there is none or too much.
func TestProcessErrorStdout(t *testing.T) {
	t.Parallel()
	for plugin, want := range map[string]string{
		"lies": `{"cniVersion":"1.1.0","ips":[]}`, "text": "cannot find \xff the \x00 bridge\n",
		"mute": "", "flood": "", "absent": "",
	} {
		dir := pluginDir(t, "lies", "text", "mute", "flood")
		_, err := invoke.Process{Stderr: io.Discard}.Call(t.Context(),
			add(filepath.Join(dir, plugin)))
		var e *invoke.Error
		if !errors.As(err, &e) || string(e.Stdout) != want || want == "" && e.Stdout != nil {
			t.Errorf("%s: standard output %q in %v, want %q", plugin, e.Stdout, err, want)
		}
	}
}

// Base replaces the inherited environment. If it has the CNI_ variables of the call, the plugin
// gets exactly Base; otherwise the variables of the call are set.
func TestProcessBase(t *testing.T) {
	t.Setenv("FOO", "of this process")
	t.Setenv("CNI_ARGS", "STALE=1")
	trace := invoke.Trace{Parent: parent, State: "a=b"}
	for _, row := range []struct {
		name    string
		trace   invoke.Trace
		base    []string
		environ []string
		env     cni.Env
		want    []string
	}{
		{"exact, without variables that are not set", invoke.Trace{},
			[]string{"A=1", "CNI_COMMAND=GC", "CNI_PATH=", "nosign"}, nil, cni.Env{Command: cni.GC},
			[]string{"A=1", "CNI_COMMAND=GC", "CNI_PATH=", "nosign"}},
		{"the last of several values counts", invoke.Trace{},
			[]string{"A=1", "CNI_COMMAND=ADD", "A=2", "CNI_COMMAND=GC"}, nil,
			cni.Env{Command: cni.GC}, []string{"A=2", "CNI_COMMAND=GC"}},
		{"empty", invoke.Trace{}, []string{}, nil, cni.Env{}, nil},
		{"a trace is added to an exact environment", trace,
			[]string{"A=1", "TRACEPARENT=old", "BAGGAGE=old", "CNI_COMMAND=GC"}, nil,
			cni.Env{Command: cni.GC},
			[]string{"A=1", "CNI_COMMAND=GC", "TRACEPARENT=" + parent, "TRACESTATE=a=b"}},
		{"Environ is added to an exact environment", invoke.Trace{},
			[]string{"A=1", "CNI_COMMAND=GC"}, []string{"A=3", "B=2"}, cni.Env{Command: cni.GC},
			[]string{"A=3", "B=2", "CNI_COMMAND=GC"}},
		{"another verb, as for a delegate", invoke.Trace{},
			[]string{"A=1", "CNI_COMMAND=ADD", "CNI_NETNS_OVERRIDE=1"}, nil,
			cni.Env{Command: cni.Del, Path: "/b"},
			[]string{"A=1", "CNI_ARGS=", "CNI_COMMAND=DEL", "CNI_CONTAINERID=", "CNI_IFNAME=",
				"CNI_NETNS=", "CNI_PATH=/b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := invoke.Process{Base: row.base,
				Environ: func(context.Context) []string { return row.environ }}
			reply, err := p.Call(invoke.WithTrace(t.Context(), row.trace), invoke.Call{
				Path: filepath.Join(pluginDir(t, "state"), "state"), Env: row.env})
			if err != nil {
				t.Fatal(err)
			}
			var got state
			if err := json.Unmarshal(reply.Stdout, &got); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got.Env)
			if diff := cmp.Diff(row.want, got.Env, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A plugin of a caller that records the operation does not record it again.
func TestProcessJournaled(t *testing.T) {
	t.Parallel()
	p := invoke.Process{Base: []string{"CNI_COMMAND=GC", "TENON_JOURNAL=/j"}}
	for journaled, want := range map[bool]string{false: "TENON_JOURNAL=/j", true: "TENON_JOURNAL=off"} {
		reply, err := p.Call(t.Context(), invoke.Call{
			Path: filepath.Join(pluginDir(t, "state"), "state"), Env: cni.Env{Command: cni.GC},
			Journaled: journaled})
		if err != nil {
			t.Fatal(err)
		}
		var got state
		if err := json.Unmarshal(reply.Stdout, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(got.Env, want) || len(got.Env) != 2 {
			t.Errorf("journaled %t: environment %q lacks %s", journaled, got.Env, want)
		}
	}
}

// EXE-04: a plugin may leave a request of any size unread.
func TestProcessUnreadStdin(t *testing.T) {
	t.Parallel()
	c := add(filepath.Join(pluginDir(t, "ok"), "ok"))
	c.Stdin = bytes.Repeat([]byte(" "), 1<<20)
	if _, err := (invoke.Process{Stderr: io.Discard}).Call(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// DIS-36, EXE-08: standard error is passed on regardless of the outcome, and its end is kept.
func TestProcessStderr(t *testing.T) {
	t.Parallel()
	for plugin, want := range map[string]string{"ok": "a log line\n", "fails": "why\n"} {
		var passed bytes.Buffer
		reply, err := invoke.Process{Stderr: &passed}.Call(t.Context(),
			add(filepath.Join(pluginDir(t, plugin), plugin)))
		kept := reply.Stderr
		if e := (*invoke.Error)(nil); errors.As(err, &e) {
			kept = e.Stderr
		}
		if passed.String() != want || string(kept) != want {
			t.Errorf("%s: passed on %q, kept %q, want %q", plugin, passed.String(), kept, want)
		}
	}
}

// EXE-12, R-05: the end of the context ends the call soon, regardless of the plugin's reaction, and
// ends every process of the group.
func TestProcessDeadline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		plugin string
		why    string
		alive  bool // whether the process in the .pid file survives
	}{
		{"hang", "dies of SIGTERM", false},
		{"stubborn", "ignores SIGTERM", false},
		{"forks", "has a descendant in its group that ignores SIGTERM and holds standard output",
			false},
		{"forks-session", "has a descendant of its own session that holds standard output", true},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(pluginDir(t, tt.plugin), tt.plugin)
			ctx, cancel := context.WithCancel(t.Context())
			canceled := make(chan time.Time, 1)
			go func() {
				waitForFile(ctx, path+".pid")
				canceled <- time.Now()
				cancel()
			}()
			_, err := invoke.Process{Stderr: io.Discard}.Call(ctx, add(path))
			// make bench measures the exact delay
			if late := time.Since(<-canceled); late > testnet.Patience {
				t.Errorf("%s: call returned %v late", tt.why, late)
			}
			if !errors.Is(err, context.Canceled) || cni.CodeOf(err) != cni.CodeInternal {
				t.Fatalf("got %s", describe(err))
			}
			pid := readPID(t, path+".pid")
			if tt.alive && gone(pid) {
				t.Errorf("%s: it has ended", tt.why)
			}
			if !tt.alive { // a killed process ends a moment later
				testnet.Eventually(t, func() error {
					if !gone(pid) {
						return fmt.Errorf("%s: it is alive", tt.why)
					}
					return nil
				})
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		})
	}
}

// An error object that a plugin prints between SIGTERM and SIGKILL is reported.
func TestProcessDeadlineMessage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(pluginDir(t, "polite"), "polite")
	ctx, cancel := context.WithCancelCause(t.Context())
	shutdown := errors.New("shutting down")
	go func() {
		waitForFile(ctx, path+".pid")
		cancel(shutdown)
	}()
	_, err := invoke.Process{}.Call(ctx, add(path))
	var e *invoke.Error
	if !errors.As(err, &e) {
		t.Fatal(describe(err))
	}
	if e.Err.Details != "interrupted" || !errors.Is(err, shutdown) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("got %s", describe(err))
	}
	if !strings.HasPrefix(err.Error(), "polite ADD: stopped after ") {
		t.Errorf("got %s", describe(err))
	}
}

func TestProcessContextEndedBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	path := filepath.Join(pluginDir(t, "hang"), "hang")
	_, err := invoke.Process{}.Call(ctx, add(path))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %s", describe(err))
	}
	if _, err := os.Stat(path + ".pid"); err == nil {
		t.Error("the plugin was started")
	}
}

// DIS-36, EXE-13: a descendant that keeps standard output open does not delay the call after the
// plugin has exited, and keeps running.
func TestProcessOrphan(t *testing.T) {
	t.Parallel()
	path := filepath.Join(pluginDir(t, "orphan"), "orphan")
	start := time.Now()
	reply, err := invoke.Process{Stderr: io.Discard}.Call(t.Context(), add(path))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > testnet.Patience {
		t.Errorf("took %v", took)
	}
	if string(reply.Stdout) != "{}" {
		t.Errorf("stdout %q", reply.Stdout)
	}
	waitForFile(t.Context(), path+".pid")
	pid := readPID(t, path+".pid")
	if gone(pid) {
		t.Error("the descendant was killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// DIS-36, EXE-14, R-06: a call retries a binary that is still being written.
func TestProcessBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ok")
	w := copyBusy(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := invoke.Process{Stderr: io.Discard}.Call(ctx, add(path))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while busy: %s", describe(err))
	}
	go func() {
		time.Sleep(150 * time.Millisecond)
		_ = w.Close()
	}()
	if _, err := (invoke.Process{Stderr: io.Discard}).Call(t.Context(), add(path)); err != nil {
		t.Errorf("after writing: %s", describe(err))
	}
}

// EXE-14, R-06: a call does not retry forever, and the error states the cause.
func TestProcessStaysBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ok")
	copyBusy(t, path)
	_, err := invoke.Process{Stderr: io.Discard}.Call(t.Context(), add(path))
	want := "5 ok ADD: start: fork/exec " + path + ": text file busy: " +
		"the file is still being written; replace plugins by renaming a finished file"
	if got := describe(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// copyBusy copies the test binary and keeps the copy open for writing.
func copyBusy(t *testing.T, path string) *os.File {
	t.Helper()
	b, err := os.ReadFile(executable(t))
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	return w
}

// EXE-02: the error for a file that cannot be executed has a hint.
func TestProcessCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, f := range map[string]struct {
		content string
		mode    os.FileMode
	}{"plain": {"x", 0o644}, "noformat": {"x", 0o755}, "interpreter": {"#!/nowhere/sh\n", 0o755}} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.content), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"plain":       "permission denied: the file is not executable, or its file system is mounted noexec",
		"noformat":    "exec format error: the file is neither a program for this architecture nor a script with an interpreter line",
		"interpreter": "no such file or directory: the file or its interpreter does not exist",
		"absent":      "no such file or directory: the file or its interpreter does not exist",
	} {
		path := filepath.Join(dir, name)
		_, err := invoke.Process{}.Call(t.Context(), add(path))
		want = "5 " + name + " ADD: start: fork/exec " + path + ": " + want
		if got := describe(err); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func waitForFile(ctx context.Context, path string) {
	for ctx.Err() == nil {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}
