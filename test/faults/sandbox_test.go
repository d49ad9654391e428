//go:build amd64

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	builtin "github.com/tenon-cni/tenon/plugins/all"
)

// runtimeArg turns the test binary into a runtime that embeds the library: see runAsRuntime.
const runtimeArg = "sandbox-runtime"

// job is the task of such a runtime.
type job struct {
	Verb, ID, Netns  string
	Ports            json.RawMessage
	Networks         []json.RawMessage
	Dir, Plugins     string
	Parallel, Linked bool
}

// runAsRuntime runs a job and returns true, if the arguments name one.
func runAsRuntime(args []string) bool {
	if len(args) != 3 || args[1] != runtimeArg {
		return false
	}
	var j job
	err := json.Unmarshal([]byte(args[2]), &j)
	if err == nil {
		err = j.do(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func (j job) do(ctx context.Context) error {
	m, err := network.NewManager(network.ManagerOptions{
		Client: &network.Client{
			Isolated: true, StateDir: filepath.Join(j.Dir, "tenon"), PluginDirs: []string{j.Plugins}, Caller: j.caller(),
			Log: slog.New(slog.DiscardHandler),
		},
		IfName: network.Numbered("eth"), Loopback: true, Parallel: j.Parallel,
	})
	if err != nil {
		return err
	}
	switch j.Verb {
	case "setup":
		r := network.SandboxRequest{ID: j.ID, Parameters: network.Parameters{Netns: j.Netns}}
		r.Capabilities = map[string]json.RawMessage{"portMappings": j.Ports}
		for _, b := range j.Networks {
			n, err := config.LoadBytes(b)
			if err != nil {
				return err
			}
			r.Networks = append(r.Networks, network.Join{Network: n})
		}
		_, err = m.Setup(ctx, r)
	case "remove":
		err = m.Remove(ctx, j.ID, nil)
	case "recover":
		err = m.Recover(ctx, nil)
	case "check":
		var s *network.Sandbox
		if s, err = m.Sandbox(ctx, j.ID); err == nil && len(s.Attachments) != len(j.Networks)+1 {
			err = fmt.Errorf("only some are attached: %v", s.Attachments)
		}
		err = errors.Join(err, m.Check(ctx, j.ID))
	default:
		err = fmt.Errorf("verb %q", j.Verb)
	}
	return err
}

func (j job) caller() invoke.Caller {
	if j.Linked {
		return plugin.Linked{Plugins: builtin.Plugins, Log: slog.New(slog.DiscardHandler)}
	}
	return invoke.Process{Stderr: io.Discard}
}

// A runtime that embeds the library can be killed anywhere in a Setup or Remove of three networks:
// after recovery by the next one, the container has all networks or none, and a neighbour is not
// harmed (LIF-04).
func TestSandboxRuntimeIsKilled(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	_, plugins := build(t)
	for _, row := range []struct {
		name   string
		job    job
		sample int // breaks every n-th change
	}{
		{"in order", job{}, 2},
		{"in parallel", job{Parallel: true}, 6},
		{"plugins linked in", job{Linked: true}, 8},
	} {
		for _, verb := range []string{"setup", "remove"} {
			t.Run(verb+" "+row.name, func(t *testing.T) {
				t.Parallel()
				newSandboxRig(t, plugins, row.job).sweep(verb, row.sample)
			})
		}
	}
}

// sandboxRig is a runtime with three networks, one of them loopback, in its own namespaces and
// directories. The container "neighbour" is attached all the time.
type sandboxRig struct {
	runtime
	job   job
	clean string // the snapshot with the neighbour alone
}

func newSandboxRig(t *testing.T, plugins string, j job) *sandboxRig {
	t.Helper()
	j.Dir, j.Plugins = t.TempDir(), plugins
	r := &sandboxRig{job: j}
	r.runtime = runtime{t, testnet.New(t, "container", "neighbour"), r.command}
	ipam := func(subnet string) string {
		return fmt.Sprintf(`{"type":"host-local","dataDir":%q,"subnet":%q}`, filepath.Join(r.job.Dir, "ipam"), subnet)
	}
	r.job.Networks = []json.RawMessage{
		[]byte(`{"cniVersion":"1.1.0","name":"red","plugins":[
			{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"ipam":` + ipam("10.88.0.0/29") + `},
			{"type":"portmap","capabilities":{"portMappings":true}}]}`),
		[]byte(`{"cniVersion":"1.1.0","name":"blue","plugins":[{"type":"ptp","ipMasq":true,"ipam":` + ipam("10.89.0.0/28") + `}]}`),
	}
	r.must("setup", "neighbour")
	// The shared objects exist before the first comparison.
	r.must("setup", "container")
	r.must("remove", "container")
	r.clean = r.snapshot()
	return r
}

func (r *sandboxRig) snapshot() string { return snapshot(r.t, r.net, r.job.Dir) }

func (r *sandboxRig) command(verb, container string) *exec.Cmd {
	r.t.Helper()
	j := r.job
	j.Verb, j.ID, j.Netns = verb, container, r.net.Container(container).Path()
	j.Ports = json.RawMessage(strings.TrimPrefix(ports[container], "portMappings="))
	b, err := json.Marshal(j)
	if err != nil {
		r.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(exe, runtimeArg, string(b))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TENON_EXEC=always"}
	return cmd
}

func (r *sandboxRig) sweep(verb string, stride int) {
	r.t.Helper()
	prepare := func() {
		if verb == "remove" {
			r.must("setup", "container")
		}
	}
	prepare()
	changes := r.broken(verb, tracer.Fault{First: true}).Changes
	r.must("remove", "container")
	for n := 0; n < len(changes); n += stride {
		prepare()
		result := r.broken(verb, tracer.Fault{Effect: tracer.Kill, First: true, N: n})
		c := changes[n]
		if result.Hit {
			c = result.Changes[n]
		}
		if result.Hit && !result.Killed {
			r.t.Fatalf("%s, change %d: exit status %d", verb, n+1, result.Code)
		}
		r.recover(verb, fmt.Sprintf("%s, killed at change %d (%s)", verb, n+1, c.Name))
	}
	if out, err := r.try("check", "neighbour"); err != nil {
		r.t.Errorf("the neighbour: %v\n%s", err, out)
	}
	r.t.Logf("%d changes, every %d. tried", len(changes), stride)
}

// recover acts as the next runtime, and expects all networks or none.
func (r *sandboxRig) recover(verb, what string) {
	r.t.Helper()
	if out, err := r.try("recover", "container"); err != nil {
		r.t.Errorf("%s: recover: %v\n%s", what, err, out)
	}
	out, err := r.try("check", "container")
	if err == nil { // Setup had finished, or Remove had not begun
		r.must("remove", "container")
	}
	if diff := settledDiff(r.clean, r.snapshot); diff != "" {
		r.t.Errorf("%s: objects exist, but check: %v\n%s\n%s", what, err, out, diff)
		_, _ = r.try("remove", "container")
		r.clean = r.snapshot()
	}
}
