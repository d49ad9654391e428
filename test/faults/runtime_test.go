//go:build amd64

package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// Field row 3, CACHE-11, LIF-04, RT-DEL-08: wherever a runtime is killed while it runs a chain of three plugins, those who
// come after it take back what it has left, with "tenon recover" and a DEL of what was finished. A neighbour is not harmed.
func TestRuntimeIsKilled(t *testing.T) {
	t.Parallel()
	tenon, plugins := build(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{markerPrefix + "one", markerPrefix + "two"} {
		if err := os.Symlink(exe, filepath.Join(plugins, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, env := range map[string][]string{
		"plugins are processes":       {"TENON_EXEC=always"},
		"the first is in the process": nil,
	} {
		for _, verb := range []string{"add", "del"} {
			t.Run(verb+", "+name, func(t *testing.T) {
				t.Parallel()
				newRuntimeRig(t, tenon, plugins, env).sweep(verb)
			})
		}
	}
}

// runtimeRig is "tenon" with a network of three plugins, in namespaces and folders of its own. The container "neighbour"
// is attached throughout.
type runtimeRig struct {
	t       *testing.T
	net     *testnet.Net
	tenon   string
	plugins string
	env     []string
	dir     string // all state
	netFile string
	clean   string // snapshot with the neighbour alone
}

func newRuntimeRig(t *testing.T, tenon, plugins string, env []string) *runtimeRig {
	t.Helper()
	r := &runtimeRig{
		t: t, net: testnet.New(t, "container", "neighbour"), tenon: tenon, plugins: plugins, env: env,
		dir: t.TempDir(), netFile: filepath.Join(t.TempDir(), "faults.conflist"),
	}
	ipam := map[string]any{"type": "host-local", "dataDir": filepath.Join(r.dir, "ipam"), "subnet": "10.88.0.0/29"}
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "faults", "plugins": []any{
		map[string]any{"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": ipam},
		map[string]any{"type": markerPrefix + "one", "dir": r.dir},
		map[string]any{"type": markerPrefix + "two", "dir": r.dir},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.netFile, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("add", "neighbour")
	// What attachments share is there before the first comparison.
	r.must("add", "container")
	r.must("del", "container")
	r.clean = r.snapshot()
	return r
}

func (r *runtimeRig) snapshot() string { return snapshot(r.t, r.net, r.dir) }

// command is a verb for a container, or one that is about none.
func (r *runtimeRig) command(verb, container string) *exec.Cmd {
	args := []string{verb, "--state-dir", filepath.Join(r.dir, "tenon"), "--cache-dir", ""}
	if verb != "ps" {
		args = append(args, "--plugin-dir", r.plugins)
	}
	if container != "" {
		args = append(args, r.netFile, r.net.Container(container).Path(), "--id", container)
	}
	cmd := exec.Command(r.tenon, args...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, r.env...)
	return cmd
}

// try runs a command that should succeed and returns what it prints.
func (r *runtimeRig) try(verb, container string) (string, error) {
	r.t.Helper()
	var out []byte
	var err error
	r.net.Host.Do(func() { out, err = r.command(verb, container).CombinedOutput() })
	return string(out), err
}

func (r *runtimeRig) must(verb, container string) {
	r.t.Helper()
	if out, err := r.try(verb, container); err != nil {
		r.t.Fatalf("%s %s: %v\n%s", verb, container, err, out)
	}
}

// broken runs a verb that is killed at one of its changes.
func (r *runtimeRig) broken(verb string, f fault) *run {
	r.t.Helper()
	var result *run
	var err error
	r.net.Host.Do(func() { result, err = trace(r.command(verb, "container"), nil, f) })
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *runtimeRig) sweep(verb string) {
	r.t.Helper()
	prepare := func() {
		if verb == "del" {
			r.must("add", "container")
		}
	}
	prepare()
	changes := r.broken(verb, fault{first: true}).changes
	r.must("del", "container")
	stride := 4 // what all does takes minutes
	if all {
		stride = 1
	}
	for n := 0; n < len(changes); n += stride {
		c := changes[n]
		prepare()
		result := r.broken(verb, fault{effect: kill, n: n, first: true})
		if result.hit && !result.killed {
			r.t.Fatalf("%s, change %d: exit status %d", verb, n+1, result.code)
		}
		if result.hit {
			c = result.changes[n]
		}
		r.recover(verb + " killed before " + c.name)
	}
	if out, err := r.try("check", "neighbour"); err != nil {
		r.t.Errorf("the neighbour: %v\n%s", err, out)
	}
	r.t.Logf("%d changes, every %d. tried", len(changes), stride)
}

// recover does what the next runtime does, and expects that nothing is left.
func (r *runtimeRig) recover(what string) {
	r.t.Helper()
	if out, err := r.try("recover", ""); err != nil {
		r.t.Errorf("%s: recover: %v\n%s", what, err, out)
	}
	out, err := r.try("ps", "")
	if err != nil {
		r.t.Errorf("%s: ps: %v\n%s", what, err, out)
	}
	if strings.Contains(out, " container ") { // not begun to be deleted, so it has to be whole
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
