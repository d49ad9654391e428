package network_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// runtimeArg makes the test binary a runtime that attaches c1 to a network of the plugin slow: see
// killedRuntime.
const runtimeArg = "runtime"

func runAsRuntime(args []string) bool {
	if len(args) != 4 || args[1] != runtimeArg {
		return false
	}
	c := &network.Client{Isolated: true, StateDir: args[2], PluginDirs: []string{args[3]},
		Caller: invoke.Process{Stderr: io.Discard}}
	n, err := config.LoadBytes([]byte(slowNetwork))
	if err != nil {
		panic(err)
	}
	if _, err := c.Add(context.Background(), n, request("c1")); err != nil {
		panic(err)
	}
	return true
}

const slowNetwork = `{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"slow"}]}`

// LIF-06: a plugin that outlives its killed runtime counts as an operation. No DEL runs while the
// plugin is still at work, and DEL runs after it.
func TestRecoverWaitsForOrphan(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	made := filepath.Join(r.plugins, "made")
	// The plugin continues when the test writes to the pipe.
	if err := unix.Mkfifo(filepath.Join(r.plugins, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.shell("slow", `case $CNI_COMMAND in
ADD) touch "$dir/started"; read line <"$dir/go"; touch "$dir/made"; echo '{"cniVersion":"1.1.0"}' ;;
DEL) rm -f "$dir/made" ;;
esac`)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runtime := exec.Command(exe, runtimeArg, r.StateDir, r.plugins)
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	waitForPath(t, filepath.Join(r.plugins, "started"))
	if err := runtime.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = runtime.Wait()

	r.Timeout = 100 * time.Millisecond // a plugin can hang
	if err := r.Recover(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "busy") {
		t.Errorf("while the plugin runs: %s", describe(err))
	}
	// WriteFile blocks until the pipe has a reader.
	if err := os.WriteFile(filepath.Join(r.plugins, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	r.Timeout = 0
	var recovered []string
	if err := r.Recover(t.Context(), func(done network.Recovered) {
		recovered = append(recovered, done.Record.Attachment.String()+" "+string(done.Record.State))
	}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(recovered, ", "); got != "red/c1/eth0 adding" {
		t.Errorf("recovered %q", got)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("the interface was not removed")
	}
	r.wantRecorded()
}

func waitForPath(t *testing.T, path string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		_, err := os.Stat(path)
		return err
	})
}

// A plugin that runs networks with the state directory of its runtime gets an error instead of
// waiting for itself.
func TestMetaPluginSharesStateDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.shell("slow", `case $CNI_COMMAND in ADD) exec `+exe+` `+runtimeArg+` `+r.StateDir+` "$dir" ;; esac`)
	n, err := config.LoadBytes([]byte(slowNetwork))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Add(t.Context(), n, request("c1"))
	if got := describe(err); !strings.Contains(got,
		"lock container c1: held by the runtime that started this program; "+
			"use a separate state directory") {
		t.Errorf("got %s", got)
	}
}
