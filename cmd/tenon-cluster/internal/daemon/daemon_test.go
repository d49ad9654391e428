package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

// script writes a shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := exefile.Write(path, []byte("#!/bin/sh\n"+text)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHook(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ text, evidence, err string }{
		"the node is off":        {text: "echo $1 is off; echo more", evidence: ": n7 is off"},
		"the node is on":         {text: "echo $1 is on >&2; exit 1", err: "exit status 1: n7 is on"},
		"a child goes on":        {text: "sleep 1000 & echo $! >$0.pid; echo $1 is off", evidence: ": n7 is off"},
		"endless line":           {text: "head -c 9999999 /dev/zero | tr '\\0' x", evidence: strings.Repeat("x", 1024)},
		"nothing says why":       {text: "exit 0", evidence: ":"},
		"program does not exist": {text: "", err: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := script(t, row.text)
			if row.text == "" {
				program += "-none"
			}
			t.Cleanup(func() { killChild(t, program+".pid") })
			type result struct {
				evidence string
				err      error
			}
			done := make(chan result, 1)
			go func() {
				evidence, err := hook(program)(t.Context(), "n7")
				done <- result{evidence, err}
			}()
			select {
			case r := <-done:
				if !strings.HasSuffix(r.evidence, row.evidence) || (r.err == nil) != (row.err == "") ||
					!strings.Contains(fmt.Sprint(r.err), row.err) {
					t.Errorf("evidence %q, %v", r.evidence, r.err)
				}
			case <-time.After(2 * hookTime):
				t.Error("the hook has not ended")
			}
		})
	}
}

// killChild kills the process that a script has left, if it has.
func killChild(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestNotifier(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"file": filepath.Join(t.TempDir(), "notify"), "abstract": fmt.Sprint("@tenon-test-", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			report := notifier(path, slog.New(slog.DiscardHandler))
			for _, state := range []string{"READY=1", "STOPPING=1"} {
				report(state)
				got := make([]byte, 100)
				n, err := l.Read(got)
				if err != nil || string(got[:n]) != state {
					t.Errorf("%q, %v; expected %q", got[:n], err, state)
				}
			}
		})
	}
}
