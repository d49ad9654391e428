package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/plan"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestKilledPlan kills plans at random times: nothing of the scratch world remains.
func TestKilledPlan(t *testing.T) {
	t.Parallel()
	run(t, "kill", fmt.Sprint(time.Now().UnixNano()%1e9))
}

func kill(w *world) {
	w.pods()
	w.container("web")
	before, processes := w.state(), w.processes()
	r := rand.New(rand.NewPCG(uint64(len(w.argument)), uint64(time.Now().UnixNano())))
	for range 8 {
		cmd := w.command("plan", "add", "pods", "web")
		w.must(cmd.Start())
		<-time.After(time.Duration(r.IntN(250)) * time.Millisecond)
		w.must(cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait() // it may have ended
	}
	if err := testnet.Try(func() error {
		if now := w.processes(); now != processes {
			return fmt.Errorf("processes before:\n%s\nafter:\n%s", processes, now)
		}
		return nil
	}); err != nil {
		w.errorf("%v", err)
	}
	if now := w.state(); now != before {
		w.errorf("seed %s: a killed plan has changed the host:\n%s", w.argument, testnet.Diff(before, now))
	}
}

// processes lists the processes of the world with their namespaces.
func (w *world) processes() string {
	var b strings.Builder
	dirs, err := filepath.Glob("/proc/[0-9]*")
	w.must(err)
	for _, dir := range dirs {
		if ns, err := os.Readlink(dir + "/ns/net"); err == nil {
			fmt.Fprintln(&b, dir, ns)
		}
	}
	return b.String()
}

// pods writes a network with all that a usual one has.
func (w *world) pods(more ...map[string]any) {
	w.network("pods", append([]map[string]any{
		{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
			"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": "10.77.0.0/24"}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}}}},
		{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
	}, more...)...)
}

// plan returns the plan of an operation.
func (w *world) plan(args ...string) (p plan.Plan, status int) {
	out, wrong, status := w.tenon(append([]string{"plan", args[0], "--json"}, args[1:]...)...)
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		panic(fmt.Sprintf("%v: %s%s", err, out, wrong))
	}
	return p, status
}

// TestUnknownEffects plans plugins that must not run: of another project, and with a daemon.
func TestUnknownEffects(t *testing.T) {
	t.Parallel()
	run(t, "unknown", "0")
}

func unknown(w *world) {
	w.container("web")
	ran := filepath.Join(w.dir, "ran")
	w.must(os.WriteFile(filepath.Join(w.dir, "bin", "foreign"), []byte("#!/bin/sh\ntouch "+ran+"\ncat >/dev/null\necho '{}'\n"), 0o755))
	w.pods(map[string]any{"type": "foreign"}, map[string]any{"type": "firewall"})
	p, status := w.plan("add", "pods", "web", "--cap", `portMappings=[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`)
	if _, err := os.Stat(ran); err == nil || status != 0 || p.Summary.Unknown != 1 {
		w.errorf("status %d, summary %+v, the plugin ran: %t", status, p.Summary, err == nil)
	}
	for _, s := range p.Steps {
		certain := s.Plugin == "bridge" || s.Plugin == "portmap"
		if s.Kind == "address" && s.Uncertain || s.Plugin == "firewall" && !s.Uncertain || certain && s.Uncertain {
			w.errorf("uncertain: %+v", s)
		}
	}
	w.network("lan", map[string]any{"type": "bridge", "bridge": "br1", "ipam": map[string]any{"type": "dhcp"}})
	p, status = w.plan("add", "lan", "web")
	if status != 0 || p.Summary.Unknown != 1 || len(p.Steps) == 0 {
		w.errorf("dhcp: status %d, %+v", status, p)
	}
	text, err := json.Marshal(p.Steps)
	w.must(err)
	if strings.Contains(string(text), plan.Unknown) || !strings.Contains(string(text), "ADDRESS dev eth0") {
		w.errorf("the unknown address: %s", text)
	}
	if w.failed {
		return
	}
	// With --detailed-exitcode, changes have a status of their own.
	if out, _, status := w.tenon("plan", "add", "pods", "web", "--detailed-exitcode"); status != 3 ||
		!strings.Contains(out, "runs "+filepath.Join(w.dir, "bin", "foreign")+", effect unknown") {
		w.errorf("status %d\n%s", status, out)
	}
	if out, _, status := w.tenon("plan", "repair", "--detailed-exitcode"); status != 0 || !strings.Contains(out, "Plan: no changes.") {
		w.errorf("status %d\n%s", status, out)
	}
}

// TestFailure plans an operation that fails. The plan has its error and its changes.
func TestFailure(t *testing.T) {
	t.Parallel()
	run(t, "failure", "0")
}

func failure(w *world) {
	w.pods()
	w.container("web")
	w.container("db")
	port := []string{"--cap", `portMappings=[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`}
	if _, wrong, status := w.tenon(append([]string{"add", "pods", "web"}, port...)...); status != 0 {
		w.errorf("add: %s", wrong)
	}
	p, status := w.plan(append([]string{"add", "pods", "db"}, port...)...)
	_, wrong, real := w.tenon(append([]string{"add", "pods", "db"}, port...)...)
	if status != 1 || real != 1 || p.Failure == nil || !strings.Contains(wrong, p.Failure.Error) || p.Summary.Changes() {
		w.errorf("status %d, failure %+v, summary %+v; real %d: %s", status, p.Failure, p.Summary, real, wrong)
	}
	made := 0
	for _, o := range p.Operations {
		if o.Text != "" {
			made++
		}
	}
	if made == 0 {
		w.errorf("no changes that are rolled back: %+v", p.Operations)
	}
	// The address is missing, which repair restores, and the MAC address differs.
	w.shell("ip -n web addr flush dev eth0; ip -n web link set eth0 address 02:00:00:00:00:99")
	out, _, _ := w.tenon("plan", "repair", "--drift")
	if !strings.Contains(out, "+ web  address  10.77.0.2/24 dev eth0") ||
		!strings.Contains(out, "drift: pods/web/eth0: link eth0 has MAC address 02:00:00:00:00:99 instead of") ||
		!strings.Contains(out, "Drift outside Tenon: 1 object") {
		w.errorf("drift:\n%s", out)
	}
}

// TestRuntimes compares plans with operations on attachments of another runtime, in its own state
// directory.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	run(t, "runtimes", "0")
}

func runtimes(w *world) {
	w.pods()
	g := &generated{world: w, attached: map[string]bool{}}
	other := []string{"--state-dir", filepath.Join(w.dir, "other")}
	for _, c := range []string{"web", "db"} {
		w.container(c)
		if _, wrong, status := w.tenon(append([]string{"add", "pods", c}, other...)...); status != 0 {
			w.errorf("add: %s", wrong)
		}
	}
	w.container("own")
	g.compare([]string{"add", "pods", "own"})
	g.compare([]string{"gc", "pods", "--keep-none", "--all-runtimes"})
	g.compare([]string{"del", "pods", "web"})
	w.shell("nft flush ruleset; ip -n db addr flush dev eth0")
	g.compare([]string{"repair"})
	// A DEL was interrupted, so that GC detaches a container the namespace of which still exists.
	w.shell("cd " + filepath.Join(w.dir, "other", "records") + ` && for f in *.json; do mv "$f" "${f%.json}.deleting"; done`)
	g.compare(append([]string{"gc", "pods", "--keep-recorded"}, other...))
}

// TestDevice compares plans with operations of host-device, which records the namespace of a device.
func TestDevice(t *testing.T) {
	t.Parallel()
	run(t, "device", "0")
}

func device(w *world) {
	w.container("web")
	w.shell("ip link add d0 type veth peer name far && ip link set far up && ip addr add 10.9.0.1/24 dev d0 && ip link set d0 up")
	w.network("dev", map[string]any{"type": "host-device", "device": "d0"},
		map[string]any{"type": "tuning", "sysctl": map[string]any{"net.ipv4.conf.IFNAME.arp_filter": "1"}})
	g := &generated{world: w, attached: map[string]bool{}}
	g.compare([]string{"add", "dev", "web"})
	g.compare([]string{"del", "dev", "web"})
}

// TestMany measures plans on a host with many attachments: run it with -run TestMany -v -many N.
func TestMany(t *testing.T) {
	testnet.Require(t, testnet.Optional(func() error {
		if *attachments == 0 {
			return errors.New("-many is 0")
		}
		return nil
	}))
	run(t, "many", fmt.Sprint(*attachments))
}

func many(w *world) {
	w.pods()
	n := 0
	if _, err := fmt.Sscan(w.argument, &n); err != nil {
		panic(err)
	}
	for i := range n {
		c := fmt.Sprint("c", i)
		w.container(c)
		if _, wrong, status := w.tenon("add", "pods", c); status != 0 {
			panic(wrong)
		}
	}
	w.container("new")
	for _, args := range [][]string{{"add", "pods", "new"}, {"del", "pods", "c1"}, {"gc", "pods", "--keep-recorded"}, {"gc"}, {"repair"}} {
		start := time.Now()
		p, status := w.plan(args...)
		fmt.Printf("%v: %v, status %d, %+v\n", args, time.Since(start), status, p.Summary)
	}
}
