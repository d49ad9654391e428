package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// TestMain runs the test binary as a plugin if it has the name of a plugin.
func TestMain(m *testing.M) {
	if behave := plugins[filepath.Base(os.Args[0])]; behave != nil {
		os.Exit(behave())
	}
	// A program with the race detector waits a second before it exits; plugins do not.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// plugins are the behaviors of the test binary by name; the result is the exit status.
var plugins = map[string]func() int{
	"ok":      func() int { return say(`{"cniVersion":"1.1.0"}`, "a log line\n", 0) },
	"fails":   func() int { return say(`{"code":11,"msg":"busy","details":"wait"}`, "why\n", 1) },
	"lies":    func() int { return say(`{"cniVersion":"1.1.0","ips":[]}`, "", 3) },
	"mute":    func() int { return say("", "", 2) },
	"grumble": func() int { return say("", "panic: boom\n\ngoroutine 1 [running]:\n", 2) },
	"text":    func() int { return say("cannot find \xff the \x00 bridge\n", "", 1) },
	"twice":   func() int { return say(`{"code":7,"msg":"one"}{"code":7,"msg":"two"}`, "", 1) },
	"nocode":  func() int { return say(`{"msg":"one"}`, "", 1) },
	"long":    func() int { return say(string(bytes.Repeat([]byte("x"), 1<<20))+"END", "", 1) },
	"dies":    func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} },
	"state":   printState,
	"objects": func() int { _, _ = io.Copy(os.Stdout, os.Stdin); return 1 },
	"flood":   flood,
	"hang":    func() int { hang(); return 0 },
	"stubborn": func() int {
		signal.Ignore(syscall.SIGTERM)
		hang()
		return 0
	},
	"polite": func() int {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM)
		started(os.Args[0])
		<-ch
		return say(`{"code":999,"msg":"interrupted"}`, "", 1)
	},
	"orphan":        func() int { return fork(false, 0) },
	"forks":         func() int { return fork(false, 10*time.Minute) },
	"forks-session": func() int { return fork(true, 10*time.Minute) },
	"sleeper": func() int {
		signal.Ignore(syscall.SIGTERM)
		started(os.Args[1])
		time.Sleep(10 * time.Minute)
		return 0
	},
}

func say(stdout, stderr string, status int) int {
	_, _ = os.Stdout.WriteString(stdout)
	_, _ = os.Stderr.WriteString(stderr)
	return status
}

// started signals the test that this process runs, with a file next to the plugin's binary.
func started(plugin string) {
	if err := os.WriteFile(plugin+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
}

func hang() {
	started(os.Args[0])
	time.Sleep(10 * time.Minute)
}

// fork starts a descendant that ignores SIGTERM and holds standard output open, and then sleeps
// itself.
func fork(session bool, stay time.Duration) int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"sleeper", os.Args[0]}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	time.Sleep(stay)
	return say(`{}`, "", 0)
}

func flood() int {
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 64 {
		if _, err := os.Stdout.Write(block); err != nil {
			return 0
		}
	}
	return 0
}

type state struct {
	Args, Env []string
	Stdin     string
	Dir       string
	Group     bool // leads a process group
}

func printState() int {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(state{os.Args, os.Environ(), string(stdin), dir,
		syscall.Getpgrp() == os.Getpid()})
	if err != nil {
		panic(err)
	}
	return say(string(b), "", 0)
}

// pluginDir returns a plugin directory with links to the test binary under the given names.
func pluginDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if err := os.Symlink(executable(t), filepath.Join(dir, n)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func add(path string) invoke.Call {
	env := cni.Env{Command: cni.Add, ContainerID: "c1", Netns: "/run/netns/x", IfName: "eth0",
		Path: filepath.Dir(path)}
	return invoke.Call{Path: path, Env: env,
		Stdin: []byte(`{"cniVersion":"1.1.0","name":"red","type":"x"}`)}
}

// call runs one of the plugins above.
func call(ctx context.Context, t *testing.T, plugin string) (invoke.Reply, error) {
	t.Helper()
	p := invoke.Process{Stderr: io.Discard}
	return p.Call(ctx, add(filepath.Join(pluginDir(t, plugin), plugin)))
}

func describe(err error) string {
	if err == nil {
		return "success"
	}
	return fmt.Sprintf("%d %v", cni.CodeOf(err), err)
}
