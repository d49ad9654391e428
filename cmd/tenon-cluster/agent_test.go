package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/cluster"
)

// TestMain also runs the programs under test: this binary is tenon-cluster if runAs says so, and
// the plugin cluster if it is called as a plugin.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CNI_COMMAND") != "":
		os.Exit(plugin.Main(cluster.Plugin, nil, "test"))
	case os.Getenv(runAs) == "tenon-cluster":
		os.Exit(run(os.Args[1:]))
	}
	testnet.Main(m)
}

const runAs = "TENON_TEST_RUN_AS"

// host is a host with etcd and files of a node.
type host struct {
	*testing.T
	net  *testnet.Net
	dir  string
	node string // the directory of the node in dir
}

const endpoint = "http://127.0.0.1:2379"

// newHost starts etcd in a namespace, and creates a cluster with a pool.
func newHost(t *testing.T) *host {
	testnet.Require(t, testnet.Root, testnet.Tool("etcd"))
	h := &host{t, testnet.New(t), t.TempDir(), "node"}
	h.net.Host.Batch("link set lo up", "link add uplink type bridge", "link set uplink up",
		"address add 192.0.2.1/24 dev uplink")
	h.start(exec.Command("etcd", "--data-dir", filepath.Join(h.dir, "etcd"),
		"--listen-client-urls", endpoint, "--advertise-client-urls", endpoint,
		"--listen-peer-urls", "http://127.0.0.1:2380"))
	testnet.Eventually(t, func() error {
		_, err := h.operate("init")
		return err
	})
	h.must("pool", "create", "pods", "10.64.0.0/16")
	return h
}

// start starts a process in the namespace. It ends when stop is called or with the test, even if
// the test process is killed: its thread stays until then.
func (h *host) start(cmd *exec.Cmd) (stop func(sig syscall.Signal)) {
	h.Helper()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.net.Host.Run(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait()
			}
			return nil
		})
	}()
	if err := <-started; err != nil {
		h.Fatal(err)
	}
	var once sync.Once
	stop = func(sig syscall.Signal) {
		once.Do(func() {
			_ = cmd.Process.Signal(sig)
			<-ended
			if h.Failed() {
				h.Logf("%s:\n%s", cmd, output.Bytes())
			}
		})
	}
	h.Cleanup(func() { stop(syscall.SIGKILL) })
	return stop
}

// program returns a command line of tenon-cluster on the node.
func (h *host) program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), runAs+"=tenon-cluster", "TENON_CLUSTER_NODE=n1",
		"TENON_CLUSTER_ENDPOINTS="+endpoint, "TENON_CLUSTER_DIR="+filepath.Join(h.dir, h.node),
		"TENON_CLUSTER_SOCKET="+h.socket(), "TENON_CLUSTER_ADDRESSES=192.0.2.1",
		"TENON_CLUSTER_ROUTES=host-gw")
	return cmd
}

func (h *host) socket() string { return filepath.Join(h.dir, h.node+".sock") }

// operate runs a command.
func (h *host) operate(args ...string) (string, error) {
	var out []byte
	err := h.net.Host.Run(func() (err error) {
		out, err = h.program(args...).CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("tenon-cluster %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must is operate that must succeed.
func (h *host) must(args ...string) string {
	h.Helper()
	out, err := h.operate(args...)
	if err != nil {
		h.Fatal(err)
	}
	return out
}

// call calls the plugin.
func (h *host) call(verb, container string) (cni.Result, error) {
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container,
		"CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=/")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "net",
		"type": "bridge", "ipam": {"type": "cluster", "pool": "pods", "dir": %q, "socket": %q}}`,
		filepath.Join(h.dir, h.node), h.socket()))
	var failure cni.Error
	var result cni.Result
	out, err := cmd.Output()
	switch {
	case err != nil && json.Unmarshal(out, &failure) == nil:
		return result, &failure
	case err != nil:
		return result, err
	case verb == "ADD":
		err = json.Unmarshal(out, &result)
	}
	return result, err
}

func TestAgentAndPlugin(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if _, err := h.call("ADD", "c0"); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Errorf("ADD before the agent has run: %v, expected code 11", err)
	}
	stop := h.start(h.program("agent"))
	testnet.Eventually(t, func() error {
		_, err := h.call("ADD", "c1")
		return err
	})
	stop(syscall.SIGKILL)
	result, err := h.call("ADD", "c2")
	if err != nil || len(result.IPs) != 1 || result.IPs[0].Address.Bits() != 26 {
		t.Errorf("ADD after the agent was killed: %+v, %v; expected an address of a /26", result, err)
	}
	for _, c := range []string{"c0", "c1", "c2"} {
		if _, err := h.call("DEL", c); err != nil {
			t.Errorf("DEL of %s: %v", c, err)
		}
	}
	stop = h.start(h.program("agent"))
	testnet.Eventually(t, func() error {
		r, err := agentcall.Call(t.Context(), h.socket(), agentcall.Request{Verb: agentcall.Report})
		if err == nil && (r.Status.State != "active" || r.Status.Epoch != 1) {
			err = fmt.Errorf("status %+v", *r.Status)
		}
		if err == nil && (len(r.Status.Pools) != 1 || r.Status.Pools[0].Blocks != 1) {
			err = fmt.Errorf("pools %+v", r.Status.Pools)
		}
		return err
	})
	h.wantBlackholes(1)
	stop(syscall.SIGTERM)
	h.wantBlackholes(1)
	h.must("agent", "--remove")
	h.wantBlackholes(0)
	if _, err := h.call("ADD", "c3"); err != nil {
		t.Errorf("ADD after the agent was stopped: %v", err)
	}
}

// wantBlackholes waits until the kernel has a number of routes that end packets to unused addresses
// of the node's blocks.
func (h *host) wantBlackholes(want int) {
	h.Helper()
	testnet.Eventually(h.T, func() error {
		out := h.net.Host.Command("ip", "route", "show", "protocol", "117")
		if got := strings.Count(out, "blackhole 10.64."); got != want {
			return fmt.Errorf("%d blackhole routes, expected %d:\n%s", got, want, out)
		}
		return nil
	})
}

// TestCopiedDirectory copies the directory of a node, as a container that is a node is cloned, while
// its agent runs and while it does not. The copy has the same boot ID.
func TestCopiedDirectory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	stop := h.start(h.program("agent"))
	testnet.Eventually(t, func() error {
		_, err := h.call("ADD", "c1")
		return err
	})
	refused := func(when, name string) {
		t.Helper()
		copied := *h
		copied.node = name
		if err := os.CopyFS(filepath.Join(h.dir, name), os.DirFS(filepath.Join(h.dir, h.node))); err != nil {
			t.Fatal(err)
		}
		if r, err := copied.call("ADD", "c2"); cni.CodeOf(err) != cni.CodeTryAgainLater {
			t.Errorf("%s: ADD of the copy: %+v, %v; expected code 11", when, r.IPs, err)
		}
		if out, err := copied.operate("agent"); err == nil || !strings.Contains(out, "node reset") {
			t.Errorf("%s: the agent of the copy ended with %v and wrote %q", when, err, out)
		}
		if out, err := copied.operate("check"); err == nil || !strings.Contains(out, "reservations") {
			t.Errorf("%s: check finds %q, %v", when, out, err)
		}
		if _, err := h.call("ADD", name); err != nil {
			t.Errorf("%s: ADD of the original: %v", when, err)
		}
	}
	refused("the original runs", "copy1")
	stop(syscall.SIGTERM)
	refused("its agent is stopped", "copy2")
	h.start(h.program("agent"))
	testnet.Eventually(t, func() error {
		r, err := agentcall.Call(t.Context(), h.socket(), agentcall.Request{Verb: agentcall.Report})
		if err == nil && r.Status.State != "active" {
			err = fmt.Errorf("status %+v", *r.Status)
		}
		return err
	})
	h.must("check")
}
