package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// files is a plugin for the process tests; its attachments are files in a directory.
var files = plugin.Define(plugin.Info{Name: "files", About: "keeps a file for each attachment"},
	func() plugin.Plugin { return new(filer) })

type filer struct{ config }

func (f *filer) file(c *plugin.Call) string { return filepath.Join(f.Dir, c.ContainerID) }

func (f *filer) Add(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	if err := os.WriteFile(f.file(c), nil, 0o600); err != nil {
		return nil, err
	}
	switch f.Mode {
	case "panic":
		panic("boom")
	case "wait":
		<-ctx.Done()
		return nil, errors.Join(context.Cause(ctx), os.Remove(f.file(c)))
	case "log":
		talk(ctx, c)
	}
	return result, nil
}

func talk(ctx context.Context, c *plugin.Call) {
	trace, _ := invoke.TraceFrom(ctx)
	c.Log.Warn("hello", slog.String("state", trace.State))
	c.Log.With("a", 1).WithGroup("g").Warn("again", "b", 2)
	c.Log.Debug("not by default")
}

func (f *filer) Del(_ context.Context, c *plugin.Call) error {
	if err := os.Remove(f.file(c)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (*filer) GC(ctx context.Context, c *plugin.Call) error {
	talk(ctx, c)
	return nil
}

func (f *filer) Check(_ context.Context, c *plugin.Call) error {
	_, err := os.Stat(f.file(c))
	return err
}

// process runs files as a separate process.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	attachment     string // the file
}

func newProcess(t *testing.T, verb cni.Command, mode string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &process{Cmd: exec.CommandContext(t.Context(), exe), attachment: filepath.Join(dir, "c-1")}
	p.Args = []string{"/somewhere/files"}
	p.Env = append(os.Environ(), environment(verb).Environ()...)
	conf, err := json.Marshal(map[string]string{"cniVersion": "1.1.0", "name": "net", "dir": dir,
		"mode": mode})
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin = bytes.NewReader(conf)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

// end waits for the process, which must not hang, and returns its exit status.
func (p *process) end(t *testing.T) int {
	t.Helper()
	watchdog := time.AfterFunc(testnet.Patience, func() { _ = p.Process.Kill() })
	defer watchdog.Stop()
	var status *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	if code := p.ProcessState.ExitCode(); code < 0 {
		t.Fatalf("process ended by %v\n%s", p.ProcessState, &p.stderr)
	}
	return p.ProcessState.ExitCode()
}

func (p *process) start(t *testing.T) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}

func (p *process) run(t *testing.T) int {
	t.Helper()
	p.start(t)
	return p.end(t)
}

// document checks that standard output is one JSON document and decodes it.
func (p *process) document(t *testing.T, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(p.stdout.Bytes()))
	if err := d.Decode(into); err != nil {
		t.Fatalf("standard output %q: %v", &p.stdout, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("standard output has more than one document: %s", &p.stdout)
	}
}

func (p *process) wantError(t *testing.T, code cni.Code) {
	t.Helper()
	var raw json.RawMessage
	p.document(t, &raw)
	e, err := cni.DecodeErrorStrict(raw)
	if err != nil {
		t.Fatalf("standard output %q: %v", &p.stdout, err)
	}
	wantCode(t, e, code)
}

func (p *process) attached() bool {
	_, err := os.Stat(p.attachment)
	return err == nil
}

// openStdin gives the process a standard input that stays open.
func (p *process) openStdin(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	p.Stdin = r
}

// ENV-02, EXE-06, ERR-01, ERR-10, PL-ADD-04, PL-ADD-05, PL-DEL-07, DIS-01, DIS-32: a process prints
// at most one document on standard output, and fails with exit status 1.
func TestProcess(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		verb       cni.Command
		change     func(*testing.T, *process)
		code       cni.Code // 0 for success
		attachment bool     // whether it exists afterwards
	}{
		{"ADD", cni.Add, nil, 0, true},
		{"DEL", cni.Del, nil, 0, false},
		{"ADD in a trace that cannot be continued: TRC-05", cni.Add, func(_ *testing.T, p *process) {
			p.Env = append(p.Env, "TRACEPARENT=x", "BAGGAGE=;")
		}, 0, true},
		{"failure", cni.Check, nil, cni.CodeIOFailure, false},
		{"no standard input", cni.Add, func(_ *testing.T, p *process) { p.Stdin = nil },
			cni.CodeDecodingFailure, false},
		{"request too large", cni.Add, func(_ *testing.T, p *process) {
			p.Stdin = io.MultiReader(p.Stdin, bytes.NewReader(bytes.Repeat([]byte(" "), 16<<20)))
		}, cni.CodeIOFailure, false},
		{"largest request", cni.Add, func(_ *testing.T, p *process) {
			p.Stdin = io.LimitReader(io.MultiReader(p.Stdin,
				bytes.NewReader(bytes.Repeat([]byte(" "), 16<<20))), 16<<20)
		}, 0, true},
		{"unknown verb with an open standard input", "NOPE",
			func(t *testing.T, p *process) { p.openStdin(t) }, cni.CodeInvalidEnvironment, false},
		{"missing variables with an open standard input", cni.Add, func(t *testing.T, p *process) {
			p.Env = append(p.Env, "CNI_IFNAME=")
			p.openStdin(t)
		}, cni.CodeInvalidEnvironment, false},
		{"own namespace", cni.Add, func(_ *testing.T, p *process) {
			p.Env = append(p.Env, "CNI_NETNS=/proc/self/ns/net")
		}, cni.CodeOwnNamespace, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, row.verb, "")
			if row.change != nil {
				row.change(t, p)
			}
			status := p.run(t)
			switch {
			case row.code != 0:
				if status != 1 {
					t.Errorf("exit status %d, want 1", status)
				}
				p.wantError(t, row.code)
			case status != 0:
				t.Errorf("exit status %d: %s", status, &p.stdout)
			case row.verb == cni.Add:
				var r json.RawMessage
				p.document(t, &r)
				if _, err := cni.DecodeResultStrict(r, 0); err != nil {
					t.Error(err)
				}
			case p.stdout.Len() > 0:
				t.Errorf("printed %s, want nothing", &p.stdout)
			}
			if p.attached() != row.attachment {
				t.Errorf("attachment is there: %t", p.attached())
			}
		})
	}
}

// SEC-03: a plugin does not read a request beyond the size limit.
func TestProcessReadsNoFurther(t *testing.T) {
	t.Parallel()
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	request := &io.LimitedReader{R: zeros, N: 64 << 20}
	p := newProcess(t, cni.Add, "")
	p.Stdin = request
	if status := p.run(t); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	p.wantError(t, cni.CodeIOFailure)
	if request.N < 40<<20 {
		t.Errorf("only %d bytes are left of 64 MiB", request.N)
	}
}

func TestProcessPanics(t *testing.T) {
	t.Parallel()
	p := newProcess(t, cni.Add, "panic")
	if status := p.run(t); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	p.wantError(t, cni.CodeInternal)
	if !strings.Contains(p.stderr.String(), "(*filer).Add") {
		t.Errorf("standard error has no stack: %s", &p.stderr)
	}
}

// EXE-18: without CNI_ variables a plugin prints its name and versions, and does not read standard
// input.
func TestProcessWithoutCommand(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "", "")
	p.Env = []string{}
	p.openStdin(t)
	if status := p.run(t); status != 0 || p.stdout.Len() > 0 {
		t.Errorf("exit status %d, printed %s", status, &p.stdout)
	}
	// as upstream plugins print it
	const want = "CNI files plugin test\nCNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
	if p.stderr.String() != want {
		t.Errorf("standard error: %s", &p.stderr)
	}
}

// PL-VRS-03
func TestProcessVersion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		stdin func(*testing.T, *process)
		echo  string
	}{
		{"request", func(_ *testing.T, p *process) {
			p.Stdin = strings.NewReader(`{"cniVersion":"0.4.0"}`)
		}, "0.4.0"},
		{"nothing", func(_ *testing.T, p *process) { p.Stdin = nil }, "1.1.0"},
		{"garbage", func(_ *testing.T, p *process) { p.Stdin = strings.NewReader("]") }, "1.1.0"},
		{"too much", func(_ *testing.T, p *process) {
			p.Stdin = bytes.NewReader(make([]byte, 17<<20))
		}, "1.1.0"},
		{"left open", func(t *testing.T, p *process) { p.openStdin(t) }, "1.1.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, cni.VersionCommand, "")
			p.Env = append(os.Environ(), "CNI_COMMAND=VERSION")
			row.stdin(t, p)
			if status := p.run(t); status != 0 {
				t.Fatalf("exit status %d: %s", status, &p.stdout)
			}
			var raw json.RawMessage
			p.document(t, &raw)
			if reply, err := cni.DecodeVersionReply(raw); err != nil ||
				reply.CNIVersion != row.echo {
				t.Errorf("printed %s, want an echo of %s (%v)", raw, row.echo, err)
			}
		})
	}
}

func TestProcessIsTerminated(t *testing.T) {
	t.Parallel()
	p := newProcess(t, cni.Add, "wait")
	p.start(t)
	for !p.attached() {
		time.Sleep(time.Millisecond)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := p.end(t); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	p.wantError(t, cni.CodeTryAgainLater)
	if !strings.Contains(p.stdout.String(), "ADD interrupted: terminated") {
		t.Errorf("the message does not name the signal: %s", &p.stdout)
	}
	if p.attached() {
		t.Error("the attachment stays")
	}
}

// TestProcessIsTerminatedWhileReading sends SIGINT as a user does who runs the plugin by hand and
// presses Ctrl-C.
func TestProcessIsTerminatedWhileReading(t *testing.T) {
	t.Parallel()
	p := newProcess(t, cni.Add, "")
	p.openStdin(t)
	p.start(t)
	time.Sleep(300 * time.Millisecond) // the process is reading, or has ended
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(testnet.Patience, func() { _ = p.Process.Kill() })
	defer watchdog.Stop()
	_ = p.Wait()
	if s := p.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() ||
		s.Signal() != syscall.SIGINT {
		t.Errorf("process ended by %v", p.ProcessState)
	}
}

// TestProcessIsNotHeard checks that nothing stays attached if the plugin cannot write its result.
func TestProcessIsNotHeard(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		stdout func(*testing.T) *os.File
	}{
		{"pipe without a reader", func(t *testing.T) *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			return w
		}},
		{"full disk", func(t *testing.T) *os.File {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, cni.Add, "")
			stdout := row.stdout(t)
			defer stdout.Close()
			p.Stdout = stdout
			if status := p.run(t); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			if p.attached() {
				t.Errorf("the attachment stays\n%s", &p.stderr)
			}
		})
	}
}
