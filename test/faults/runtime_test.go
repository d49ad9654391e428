//go:build amd64

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// A runtime can be killed anywhere while it runs a chain of plugins: "tenon recover" and DEL of
// finished attachments then clean up. If a plugin is killed or fails, the runtime cleans up itself,
// or its successor does. A neighbour is not harmed (CACHE-11, LIF-04, RT-DEL-08).
func TestRuntimeIsKilled(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping))
	tenon, plugins := build(t)
	always := []string{"TENON_EXEC=always"}
	for _, row := range []struct {
		name   string
		env    []string
		fault  tracer.Fault
		sample int // breaks every n-th change
	}{
		{"runtime, plugins are processes", always, tracer.Fault{Effect: tracer.Kill, First: true}, 3},
		{"runtime, plugins are in the process", nil, tracer.Fault{Effect: tracer.Kill, First: true}, 7},
		{"a plugin", always, tracer.Fault{Effect: tracer.Kill}, 7},
		{"a call of a plugin", always, tracer.Fault{Effect: tracer.Fail}, 7},
	} {
		for _, verb := range []string{"add", "del"} {
			t.Run(verb+", "+row.name, func(t *testing.T) {
				t.Parallel()
				newRuntimeRig(t, tenon, plugins, row.env).sweep(verb, row.fault, row.sample)
			})
		}
	}
}

// ports returns the port mappings of each container.
var ports = map[string]string{
	"container": `portMappings=[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":8053,"containerPort":53,"protocol":"udp","hostIP":"127.0.0.1"},` +
		`{"hostPort":40000,"containerPort":40000,"range":10,"protocol":"udp"}]`,
	"neighbour": `portMappings=[{"hostPort":8081,"containerPort":80,"protocol":"tcp"},{"hostPort":40010,"containerPort":40010,"range":10,"protocol":"udp"}]`,
}

// runtime is a program that runs plugins in the network of a test.
type runtime struct {
	t       *testing.T
	net     *testnet.Net
	program func(verb, container string) *exec.Cmd
}

// try runs a command that should succeed and returns its output.
func (r runtime) try(verb, container string) (string, error) {
	r.t.Helper()
	var out []byte
	var err error
	r.net.Host.Do(func() { out, err = r.program(verb, container).CombinedOutput() })
	return string(out), err
}

func (r runtime) must(verb, container string) {
	r.t.Helper()
	if out, err := r.try(verb, container); err != nil {
		r.t.Fatalf("%s %s: %v\n%s", verb, container, err, out)
	}
}

// broken runs a verb and kills it at one of its changes.
func (r runtime) broken(verb string, f tracer.Fault) *tracer.Run {
	r.t.Helper()
	var result *tracer.Run
	var err error
	r.net.Host.Do(func() { result, err = tracer.Trace(r.program(verb, "container"), nil, f) })
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// runtimeRig is tenon with a network of a whole chain of plugins, in its own namespaces and
// directories. Commands such as "tenon check" find the records of all runtimes of the host, so each
// rig has a network of another name. The container "neighbour" is attached all the time.
type runtimeRig struct {
	runtime
	tenon   string
	name    string // of the network
	plugins string
	env     []string
	dir     string // all state
	netFile string
	clean   string // the snapshot with the neighbour alone
}

// rigs counts the rigs of this process.
var rigs atomic.Int32

func newRuntimeRig(t *testing.T, tenon, plugins string, env []string) *runtimeRig {
	t.Helper()
	r := &runtimeRig{
		tenon: tenon, name: fmt.Sprintf("faults-%d", rigs.Add(1)), plugins: plugins, env: env, dir: t.TempDir(), netFile: filepath.Join(t.TempDir(), "faults.conflist"),
	}
	r.runtime = runtime{t, testnet.New(t, "container", "neighbour"), r.command}
	ipam := map[string]any{"type": "host-local", "dataDir": filepath.Join(r.dir, "ipam"), "subnet": "10.88.0.0/29"}
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": r.name, "plugins": []any{
		map[string]any{"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": ipam},
		map[string]any{"type": "portmap", "snat": true, "capabilities": map[string]any{"portMappings": true}},
		map[string]any{"type": "firewall", "backend": "nftables", "ingressPolicy": "isolated"},
		map[string]any{"type": "bandwidth", "ingressRate": 8000000, "egressRate": 8000000},
		map[string]any{
			"type": "tuning", "dataDir": filepath.Join(r.dir, "tuning"), "mtu": 1400, "txQLen": 2000,
			"sysctl": map[string]any{"net.core.somaxconn": "500"},
		},
		map[string]any{"type": "sbr"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.netFile, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("add", "neighbour")
	// The shared objects exist before the first comparison.
	r.must("add", "container")
	r.must("del", "container")
	r.clean = r.snapshot()
	return r
}

func (r *runtimeRig) snapshot() string { return snapshot(r.t, r.net, r.dir) }

// command returns the arguments of a verb, for a container if it needs one.
func (r *runtimeRig) command(verb, container string) *exec.Cmd {
	args := []string{verb, "--state-dir", filepath.Join(r.dir, "tenon"), "--cache-dir", ""}
	if verb == "ps" {
		args = append(args, "--filter", "network="+r.name)
	} else {
		args = append(args, "--plugin-dir", r.plugins)
	}
	if container != "" {
		args = append(args, r.netFile, r.net.Container(container).Path(), "--id", container)
		if verb == "add" {
			args = append(args, "--cap", ports[container])
		}
	}
	cmd := exec.Command(r.tenon, args...)
	// The journal remembers attachments that no longer exist. Its own tests kill its writers.
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TENON_JOURNAL=off"}, r.env...)
	return cmd
}

func (r *runtimeRig) sweep(verb string, f tracer.Fault, stride int) {
	r.t.Helper()
	prepare := func() {
		if verb == "del" {
			r.must("add", "container")
		}
	}
	prepare()
	changes := r.broken(verb, tracer.Fault{First: f.First}).Changes
	r.must("del", "container")
	for n := 0; n < len(changes); n += stride {
		c := changes[n]
		prepare()
		f.N = n
		result := r.broken(verb, f)
		if result.Hit && f.First && !result.Killed {
			r.t.Fatalf("%s, change %d: exit status %d", verb, n+1, result.Code)
		}
		if result.Hit {
			c = result.Changes[n]
		}
		r.recover(fmt.Sprintf("%s, %s change %d (%s)", verb, f.Effect, n+1, c.Name))
	}
	if out, err := r.try("check", "neighbour"); err != nil {
		r.t.Errorf("the neighbour: %v\n%s", err, out)
	}
	r.t.Logf("%d changes, every %d. tried", len(changes), stride)
}

// recover acts as the next runtime, and expects that nothing remains.
func (r *runtimeRig) recover(what string) {
	r.t.Helper()
	if out, err := r.try("recover", ""); err != nil {
		r.t.Errorf("%s: recover: %v\n%s", what, err, out)
	}
	out, err := r.try("ps", "")
	if err != nil {
		r.t.Errorf("%s: ps: %v\n%s", what, err, out)
	}
	if strings.Contains(out, " container ") { // DEL has not begun, so the attachment must be complete
		if out, err := r.try("check", "container"); err != nil {
			r.t.Errorf("%s: recorded, but check: %v\n%s", what, err, out)
		}
		r.must("del", "container")
	}
	if diff := settledDiff(r.clean, r.snapshot); diff != "" {
		r.t.Errorf("%s: recover left:\n%s", what, diff)
		_, _ = r.try("del", "container")
		r.clean = r.snapshot()
	}
}
