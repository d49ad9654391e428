package network_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// hostile is a plugin that misbehaves on one verb.
type hostile struct {
	name   string
	script string
	hangs  bool // until it is stopped
	stays  bool // a child keeps running: it left the group, or the plugin exited
}

var hostiles = []hostile{
	{name: "hangs", script: `exec sleep 600`, hangs: true},
	{name: "hangs in a child that holds stdout", script: `sleep 600 & wait`, hangs: true},
	{name: "leaves a child that holds stdout", script: `sleep 600 & echo "$good"`, stays: true},
	{name: "ignores SIGTERM", script: `trap '' TERM; while :; do sleep 600; done`, hangs: true},
	{name: "has a child that ignores SIGTERM",
		script: `(trap '' TERM; while :; do sleep 600; done) & sleep 600`, hangs: true},
	{name: "has a child with a session of its own",
		script: `setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$dir/pid" & sleep 600`, hangs: true,
		stays: true},
	{name: "floods stdout", script: `exec yes`},
	{name: "floods stdout and ignores SIGPIPE",
		script: `trap '' PIPE; while :; do yes 2>/dev/null; done`},
	{name: "floods stderr", script: `exec yes >&2`, hangs: true},
	{name: "prints garbage", script: `echo garbage`},
	{name: "prints two documents", script: `echo "$good$good"`},
	{name: "prints part of a document", script: `printf '{"cniVersion":'`},
	{name: "prints part of a document and hangs", script: `printf '{"cniVersion":'; exec sleep 600`,
		hangs: true},
	{name: "prints 16 MiB and a byte", script: `head -c 16777217 /dev/zero`},
	{name: "prints a result and fails", script: `echo "$good"; exit 1`},
	{name: "prints an error and succeeds",
		script: `echo '{"cniVersion":"1.1.0","code":7,"msg":"wrong"}'`},
	{name: "prints nothing and fails", script: `exit 1`},
	{name: "fails with text", script: `echo 'no such bridge'; echo 'see the log' >&2; exit 3`},
	{name: "dies of a signal", script: `kill -9 $$`},
	{name: "closes stdin", script: `exec <&-; echo "$good"`},
	{name: "reads nothing of a request of 300 kB", script: `echo "$good"`},
	{name: "closes stdout and hangs", script: `exec >&-; exec sleep 600`, hangs: true},
}

// hangTime is the time after which a hanging plugin is stopped. make bench measures the delay.
const hangTime = 2 * time.Second

// EXE-04, EXE-12, EXE-13, EXE-15, EXE-16, RES-14, ERR-06, SEC-03, SEC-06, R-05, R-10, R-11: however
// a plugin misbehaves, every verb returns in time with a clear error, and no process of the
// plugin's group keeps running.
func TestHostilePlugins(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	said := map[string]string{}
	verbs := []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC, cni.VersionCommand}
	if testing.Short() {
		verbs = verbs[:2]
	}
	each := func(name string, choose func(hostile) bool) {
		t.Run(name, func(t *testing.T) {
			for _, h := range hostiles {
				if !choose(h) {
					continue
				}
				for _, verb := range verbs {
					t.Run(h.name+" on "+string(verb), func(t *testing.T) {
						t.Parallel()
						text := h.call(t, verb)
						mu.Lock()
						defer mu.Unlock()
						said[h.name+" "+string(verb)] = text
					})
				}
			}
		})
	}
	busy := func(h hostile) bool { return strings.HasPrefix(h.name, "floods") }
	each("idle", func(h hostile) bool { return !busy(h) })
	each("busy", busy)
	var got strings.Builder
	for _, h := range hostiles {
		fmt.Fprintf(&got, "# %s\n", h.name)
		for _, verb := range verbs {
			fmt.Fprintf(&got, "%s: %s\n", verb, said[h.name+" "+string(verb)])
		}
	}
	compareGolden(t, "testdata/hostile.golden", got.String(), func(line string) bool {
		verb, _, _ := strings.Cut(line, ":")
		return strings.HasPrefix(line, "#") || slices.Contains(verbs, cni.Command(verb))
	})
}

var update = flag.Bool("update", false, "rewrite the golden files")

// compareGolden compares a text with the lines of a golden file that keep selects.
func compareGolden(t *testing.T, path, got string, keep func(line string) bool) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(want), "\n"),
		func(line string) bool { return line != "" && !keep(line) })
	if diff := cmp.Diff(strings.Join(lines, ""), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// These parts of messages differ from run to run.
var (
	stopTime = regexp.MustCompile(`stopped after [0-9.]+m?s`)
	flood    = regexp.MustCompile(`"[yn\\]+" … "[yn\\]+"`)
)

// call calls the plugin and returns the outcome.
func (h hostile) call(t *testing.T, verb cni.Command) string {
	t.Helper()
	r := newRig(t, nil)
	r.shell("p", fmt.Sprintf(`good='{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'
if [ $CNI_COMMAND = %s ]; then
echo $$ >"$dir/pid"
%s
exit
fi
cat >/dev/null
echo "$good"`, verb, h.script))
	filler := strings.Repeat("x", 300_000)
	n := list(t, "1.1.0", "red", `{"type":"p","filler":"`+filler+`"}`)
	if verb == cni.Check {
		r.add(n)
	}
	r.Timeout = testnet.Patience
	ctx, pid := t.Context(), filepath.Join(r.plugins, "pid")
	if h.hangs {
		ctx = expireWhen(t, pid, hangTime)
	}
	start := time.Now()
	err := verbCall(ctx, r, verb, n)
	if took := time.Since(start); took > testnet.Patience {
		t.Errorf("returned after %v", took)
	}
	h.expectEnd(t, pid)
	return flood.ReplaceAllString(stopTime.ReplaceAllString(describe(err), "stopped after T"),
		"FLOOD")
}

func verbCall(ctx context.Context, r *rig, verb cni.Command, n *config.Network) error {
	a := request("c1").Attachment(n.Name)
	switch verb {
	case cni.Add:
		_, err := r.Add(ctx, n, request("c1"))
		return err
	case cni.Del:
		return r.Del(ctx, a, network.Fallback{Network: n})
	case cni.Check:
		return r.Check(ctx, a, n)
	case cni.Status:
		return r.Status(ctx, n)
	case cni.GC:
		return r.GC(ctx, n, keep())
	default:
		_, err := r.Versions(ctx, "p")
		return err
	}
}

// expectEnd checks whether the process group in pidFile still runs as expected, and kills it.
func (h hostile) expectEnd(t *testing.T, pidFile string) {
	t.Helper()
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, func() error { // a killed process ends a moment later
		if runs := groupRuns(t, group); runs != h.stays {
			return fmt.Errorf("a process of the group runs: %t, want %t", runs, h.stays)
		}
		return nil
	})
	if h.stays {
		if err := unix.Kill(-group, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
	}
}

// groupRuns reports whether a process of a group is neither gone nor a zombie.
func groupRuns(t *testing.T, group int) bool {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		_, rest, _ := bytes.Cut(b, []byte(") "))
		fields := bytes.Fields(rest) // state, parent, group: proc(5)
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && string(fields[0]) != "Z" {
			return true
		}
	}
	return false
}
