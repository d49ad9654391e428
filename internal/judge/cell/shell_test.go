package cell_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestShell runs the printed text of scenarios with sh(1), and compares the calls with the recording.
func TestShell(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	program := subject(t, `for a; do printf '<%s>' "$a"; done
env | grep '^X' | sort
case ${X-} in fail) exit 3;; hang) sleep 1000;; esac
cat
`)
	path := script.Plugins + "/subject"
	env := func(values ...string) []string { return append([]string{"PATH=/usr/bin:/bin"}, values...) }
	call := func(c script.Call) script.Step {
		c.Path = path
		if c.Env == nil {
			c.Env = env()
		}
		return script.Step{Calls: []script.Call{c}}
	}
	object, err := script.Object(map[string]any{
		"name": "it's $HOME `x` \\ \"q\" <&>", "n": 1, "list": []int{1, 2}, "prevResult": script.Text{{Output: "json"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*script.Scenario{
		{Name: "texts", Steps: []script.Step{
			call(script.Call{Name: "empty"}),
			call(script.Call{Name: "line", Stdin: script.Literal("no JSON\nEND-OF-INPUT\nEND-OF-SCENARIO\n")}),
			call(script.Call{Name: "spaces", Stdin: script.Literal(" {\"a\": 1}\n\n")}),
			call(script.Call{Name: "bytes", Stdin: script.Literal("\x00\x01%s\\n\xff\x1b[1m'\"ü\u202e")}),
			call(script.Call{Name: "repeat", Stdin: script.Text{{Literal: "["}, {Literal: `{"a":`, Repeat: 5000}, {Literal: "1"}}}),
			call(script.Call{Name: "odd -name's", Args: []string{"", "a b", "'", "\\", "$x", "\x1b\xff\n"},
				Env: env("X1=a b", "X2='\"$`\\", "X3=\x07", "X4=")}),
		}},
		{Name: "objects", Steps: []script.Step{
			call(script.Call{Name: "json", Stdin: script.Literal(`{"a":1,"b":["$x","c d"]}`)}),
			call(script.Call{Name: "reference", Stdin: object}),
		}},
		{Name: "ends", Steps: []script.Step{
			call(script.Call{Name: "fail", Env: env("X=fail")}),
			call(script.Call{Name: "hang", Env: env("X=hang"), Deadline: 2 * time.Second}),
			call(script.Call{Name: "open", Stdin: script.Literal("text"), Open: true, Deadline: 2 * time.Second}),
			{Calls: []script.Call{{Name: "absent", Path: "/run/absent"}}},
		}},
		{Name: "parallel", Steps: []script.Step{
			{Shell: "mkfifo /run/f"},
			{Calls: []script.Call{
				{Name: "a", Path: path, Env: env(), Args: []string{"a"}, Stdin: script.Literal(`[]`)},
				{Name: "e", Path: "/bin/sh", Args: []string{"-c", "cat >/run/e"}, Stdin: script.Literal(`{"a":1}`), Env: env()},
				{Name: "b", Path: path, Env: env()},
				{Name: "c", Path: "/bin/sh", Args: []string{"-c", "echo left >/run/f"}},
				{Name: "d", Path: "/bin/cat", Args: []string{"/run/f"}, Stdin: script.Literal("x y")},
			}},
		}},
		{Name: "commands", Files: []script.File{
			{Path: "/run/a/plain", Data: "text\nEND-OF-FILE\n"}, {Path: "/run/a b/'odd", Data: "no \x00\xff line feed", Mode: 0o600},
			script.RecorderFile("probe"), script.Answers("probe", "ADD", "cat $stdin; exit 7"),
		}, Steps: []script.Step{
			{Daemon: "echo 'in the background'\n: >/run/ready; sleep 1000", Shell: "test -e /run/ready"},
			{Shell: "x=1\ncd /run; echo $x >/run/made"},
			{Shell: "false\necho never >/run/made", Try: true},
			{Calls: []script.Call{{Name: "files", Path: "/bin/sh", Env: env(), Args: []string{"-c",
				"pwd; cat /run/made /run/a/plain \"/run/a b/'odd\"; stat -c %a \"/run/a b/'odd\"; ls /var; cat /etc/passwd | wc -l; cat " + script.DaemonLog}}}},
			{Calls: []script.Call{{Name: "probe", Path: script.Plugins + "/probe", Env: []string{"CNI_COMMAND=ADD"},
				Stdin: script.Literal("1")}}},
		}},
	} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Programs = []string{program}
			r, err := cell.Run(t.Context(), s)
			if err != nil || r.Broken != "" {
				t.Fatal(err, r)
			}
			compare(t, r, s.Shell())
		})
	}
}

// compare runs a text and compares the calls. In the text, objects are indented.
func compare(t *testing.T, r *script.Recording, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", file)
	var messages strings.Builder
	cmd.Stderr = &messages
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, messages.String(), text)
	}
	var want strings.Builder
	for _, e := range r.Events {
		for _, c := range e.Calls {
			status := strconv.Itoa(c.Status)
			switch {
			case c.Signal != 0:
				status = strconv.Itoa(128 + c.Signal)
			case c.Failed != "":
				status = "127"
			}
			var object bytes.Buffer
			if json.Indent(&object, c.Stdout, "", "  ") == nil && r.Scenario.Name == "objects" {
				c.Stdout = append(object.Bytes(), '\n')
			}
			fmt.Fprintf(&want, "--- %s: exit status %s\n%s\n", c.Name, status, c.Stdout)
			for _, p := range c.Recorded {
				fmt.Fprintf(&want, "ran %s\nCNI_COMMAND=%s\n%s\n", p.Plugin, p.Getenv("CNI_COMMAND"), p.Stdin)
			}
		}
	}
	got, expected := string(printed), want.String()
	if r.Scenario.Name == "objects" { // an output that is inserted has its own indentation
		got, expected = strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(expected, " ", "")
	}
	if got != expected {
		t.Errorf("printed:\n%q\nwant:\n%q\nmessages: %s\ntext:\n%s", printed, want.String(), messages.String(), text)
	}
}
