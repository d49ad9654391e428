//go:build unix

package invoke_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the test binary as a plugin if it has the name of a plugin.
func TestMain(m *testing.M) {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	if behave := plugins[name]; behave != nil {
		os.Exit(behave())
	}
	if !strings.HasSuffix(name, ".test") {
		fmt.Fprintf(os.Stderr, "no plugin %s\n", name) // a copy must not run the tests again
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// plugins are the behaviors of the test binary by name; the result is the exit status.
var plugins = map[string]func() int{
	"state": printState,
	"ok":    func() int { return say(`{"cniVersion":"1.0.0"}`, "a line\n", 0) },
	"fails": func() int {
		return say(`{"code":11,"msg":"busy","details":"wait","x":1}`, "why\n", 1)
	},
	"nomsg":   func() int { return say(`{"code":7,"details":"d"}`, "", 2) },
	"empty":   func() int { return say(`{}`, "", 1) },
	"null":    func() int { return say(`null`, "why\n", 1) },
	"nocode":  func() int { return say(`{"msg":"one"}`, "", 1) },
	"text":    func() int { return say("no bridge\n", "why\n", 1) },
	"badcode": func() int { return say(`{"code":-1,"msg":"x"}`, "", 1) },
	"grumble": func() int { return say("", "some text\n", 3) },
	"silent":  func() int { return say("", "", 3) },
	"dies":    func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} },
	"flood":   func() int { return say(strings.Repeat("x", 17<<20), "", 0) },
	"chatty":  func() int { return say("{}", strings.Repeat("x", 3<<20)+"END", 0) },
	"shouts":  func() int { return say("", strings.Repeat("x", 3<<20)+"END", 1) },
	"sleeps":  func() int { started(); time.Sleep(time.Minute); return 0 },
	"v010":    func() int { return say(`{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}`, "", 1) },
	"v020":    func() int { return say(`{"cniVersion":"0.2.0"}`, "", 0) },
	"v100": func() int {
		return say(`{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}`, "", 0)
	},
	"mute": func() int { return say("", "", 0) },
	"odd": func() int {
		return say(`{"code":4,"msg":"unknown CNI_COMMAND: VERSION","details":"x"}`, "", 1)
	},
}

func say(stdout, stderr string, status int) int {
	_, _ = os.Stdout.WriteString(stdout)
	_, _ = os.Stderr.WriteString(stderr)
	return status
}

// started creates a file next to the plugin.
func started() {
	if err := os.WriteFile(os.Args[0]+".started", nil, 0o600); err != nil {
		panic(err)
	}
}

// state is what a plugin sees.
type state struct {
	Args, Env []string
	Stdin     string
	Leads     bool // its process group
}

func printState() int {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	env := os.Environ()
	slices.Sort(env)
	b, err := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		state
	}{"1.0.0", state{os.Args, env, string(stdin), syscall.Getpgrp() == os.Getpid()}})
	if err != nil {
		panic(err)
	}
	return say(string(b), "", 0)
}

// decodeState decodes the output of the plugin state.
func decodeState(t *testing.T, out []byte) state {
	t.Helper()
	var s state
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return s
}

// pluginDir returns a plugin directory with links to the test binary under the given names.
func pluginDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(executable(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func plugin(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(pluginDir(t, name), name)
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); g != w {
		t.Errorf("%s:\ngot  %s\nwant %s", what, g, w)
	}
}

// text returns the text of an error, "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
