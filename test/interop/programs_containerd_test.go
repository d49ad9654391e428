//go:build programs

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// newProgram starts containerd 2, built with a library.
func newProgram(t *testing.T, built library) *containerd {
	t.Helper()
	n := newNode(t)
	n.search = searchFrom(built.dir(t, "containerd"))
	return newContainerdOn(n)
}

// TestProgramContainerdPods: containerd on Tenon's library runs pods with each set of plugins. They
// are reachable, also after containerd was killed, and removing them leaves nothing behind.
func TestProgramContainerdPods(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		c := newProgram(t, compat)
		install(c.node)
		c.pods()
	})
}

// pods runs pods and removes them.
func (c *containerd) pods() {
	c.t.Helper()
	outside := c.Uplink()
	c.configure("")
	c.remove(c.sandbox("first", 8080)) // leaves the shared objects
	before := c.snapshot()
	web, other := c.sandbox("web", 8080), c.sandbox("other", 8081)
	c.served(web, "8080", outside)
	c.served(other, "8081", outside)
	c.kill()
	c.start()
	c.served(web, "8080", outside)
	c.remove(web)
	greeted(c.t, outside, "192.0.2.1:8080", false)
	c.served(other, "8081", outside)
	c.remove(other)
	c.unchanged(before)
	c.nothingKept()
}

// TestProgramContainerdLinked: containerd with a blank import runs Tenon's plugins in its process,
// and starts no process for them; upstream's plugins are processes.
func TestProgramContainerdLinked(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("strace"))
	withPlugins(t, func(t *testing.T, install func(*node)) {
		c := newProgram(t, linked)
		install(c.node)
		c.pods()
		started := c.startedPlugins(func() { c.remove(c.sandbox("web", 8080)) })
		if ours := t.Name() == "TestProgramContainerdLinked/Tenon's_plugins"; ours != (started == "") {
			t.Errorf("containerd has started:\n%s", started)
		}
	})
}

// TestProgramContainerdMany: containerd attaches and detaches pods at the same time, with plugins as
// processes and in its own process.
func TestProgramContainerdMany(t *testing.T) {
	t.Parallel()
	for _, built := range []library{compat, linked} {
		t.Run(string(built), func(t *testing.T) {
			t.Parallel()
			c := newProgram(t, built)
			c.install()
			outside := c.Uplink()
			c.configure("")
			c.remove(c.sandbox("first", 8080)) // leaves the shared objects
			before := c.snapshot()
			ids := make([]string, 12)
			c.atOnce(len(ids), func(i int) error {
				response, err := c.call("RunPodSandbox", c.pod(fmt.Sprint("pod", i), 8080+i))
				if err == nil {
					ids[i] = response["podSandboxId"].(string)
				}
				return err
			})
			for i, id := range ids {
				c.served(id, fmt.Sprint(8080+i), outside)
			}
			c.atOnce(len(ids), func(i int) error {
				_, stopped := c.call("StopPodSandbox", object{"pod_sandbox_id": ids[i]})
				_, removed := c.call("RemovePodSandbox", object{"pod_sandbox_id": ids[i]})
				return errors.Join(stopped, removed)
			})
			c.unchanged(before)
			c.nothingKept()
		})
	}
}

// atOnce calls do n times at once, and fails the test if a call fails.
func (c *containerd) atOnce(n int, do func(i int) error) {
	c.t.Helper()
	failures := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { failures[i] = do(i) })
	}
	calls.Wait()
	must(c.t, errors.Join(failures...))
}

// startedPlugins returns the calls of execve(2) with which containerd starts plugins during an
// action.
func (c *containerd) startedPlugins(action func()) string {
	c.t.Helper()
	const log = "/run/strace.log"
	pid := strings.TrimSpace(c.run("cat", "/run/containerd.pid"))
	trace := c.command("strace", "-f", "-qq", "-e", "trace=execve", "-o", log, "-p", pid)
	must(c.t, trace.Start())
	c.await("strace", func() error {
		_, err := c.try("grep", "-qE", "^TracerPid:[[:space:]]*[1-9]", "/proc/"+pid+"/status")
		return err
	})
	action()
	must(c.t, trace.Process.Signal(os.Interrupt))
	_ = trace.Wait() // ends by the signal
	started, _ := c.try("grep", plugins, log)
	return started
}

// TestProgramContainerdMoves: containerd on Tenon's library takes over the pods of containerd on
// upstream's library, and the reverse: each reads the cache of the other.
func TestProgramContainerdMoves(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		c := newProgram(t, original)
		install(c.node)
		outside := c.Uplink()
		c.configure("")
		c.remove(c.sandbox("first", 8080)) // leaves the shared objects
		before := c.snapshot()
		move := func(to library) {
			c.kill()
			c.search = searchFrom(to.dir(t, "containerd"))
			c.start()
		}
		web := c.sandbox("web", 8080)
		move(compat)
		c.served(web, "8080", outside)
		c.remove(web)
		greeted(t, outside, "192.0.2.1:8080", false)
		other := c.sandbox("other", 8081)
		move(original)
		c.served(other, "8081", outside)
		c.remove(other)
		c.unchanged(before)
		c.nothingKept()
	})
}

// TestProgramContainerdRollback: if a plugin in the middle of a chain fails, ADD of Tenon's library
// leaves nothing behind, and containerd reports the error of the plugin.
func TestProgramContainerdRollback(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		c := newProgram(t, compat)
		install(c.node)
		c.installNote()
		c.configure(noteConf)
		c.remove(c.sandbox("first", 8080)) // leaves the shared objects
		before := c.snapshot()
		c.write(noteDir+"/refuse", "")
		_, err := c.call("RunPodSandbox", c.pod("web", 8080))
		saysNoNotes(t, err)
		c.unchanged(before)
		c.run("rm", noteDir+"/refuse")
		c.remove(c.sandbox("web", 8080))
		c.unchanged(before)
	})
}

// TestProgramCtr: `ctr run --cni`, which attaches containers itself, with each set of plugins. When
// it detaches a container, the namespace no longer exists. Tenon's plugins leave nothing. Upstream's
// plugins leave some rules, with both libraries the same.
func TestProgramCtr(t *testing.T) {
	t.Parallel()
	t.Run("Tenon's plugins", func(t *testing.T) {
		t.Parallel()
		if left := leftByCtr(t, compat, func(n *node) { n.install() }); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
	t.Run("upstream's plugins", func(t *testing.T) {
		t.Parallel()
		install := func(n *node) { n.installUpstream(compat) }
		sameAs(t, leftByCtr(t, original, install), leftByCtr(t, compat, install))
	})
}

// leftByCtr runs a container and returns the objects that it leaves on the host.
func leftByCtr(t *testing.T, built library, install func(*node)) string {
	t.Helper()
	c := newProgram(t, built)
	install(c.node)
	c.privateEtc()
	c.write("/etc/cni/net.d/10-pods.conflist", podsConf)
	c.run("ctr", "image", "import", image(t))
	c.ctr("first")() // leaves the shared objects
	before := c.snapshot()
	end := c.ctr("web")
	greeted(t, c.Host, net.JoinHostPort(c.attached("web").String(), "80"), true)
	end()
	c.nothingKept()
	return testnet.Diff(before, c.snapshot())
}

// podsConf is a network of the default configuration directory.
const podsConf = `{"cniVersion":"1.0.0","name":"pods","plugins":[
	{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
		"ipam":{"type":"host-local","subnet":"10.85.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// privateEtc gives the node a directory /etc of its own, with the content of the host's but no
// networks.
func (n *node) privateEtc() {
	n.t.Helper()
	n.run("sh", "-ec", `mkdir -p /run/etc/upper /run/etc/work
		mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc
		rm -rf /etc/cni; mkdir -p /etc/cni/net.d`)
}

// ctr runs a container with a network until the returned function is called, which ends it and
// waits for its detachment. It expects no other container with a veth pair.
func (c *containerd) ctr(name string) (end func()) {
	c.t.Helper()
	cmd := c.command("ctr", "run", "--rm", "--cni", "--snapshotter", "native", "--cgroup", "/"+c.cgroup+"/"+name, imageName, name)
	var messages strings.Builder
	cmd.Stderr = &messages
	must(c.t, cmd.Start())
	c.await("container", func() error {
		tasks := c.run("ctr", "task", "list")
		if !strings.Contains(tasks, "RUNNING") {
			return errors.New(tasks)
		}
		return nil
	})
	return func() {
		c.t.Helper()
		c.run("ctr", "task", "kill", "--signal", "SIGKILL", name)
		_ = cmd.Wait()                            // returns the status of the container
		c.await("end of the link", func() error { // the kernel deletes it in the background
			if links := c.run("ip", "-oneline", "link", "show", "type", "veth"); links != "" {
				return errors.New(links)
			}
			return nil
		})
	}
}

// attached returns the address of a container in the cached result of network pods.
func (n *node) attached(container string) netip.Addr {
	n.t.Helper()
	files := n.files("/var/lib/cni/results/pods-*" + container + "-eth0")
	if len(files) != 1 {
		n.t.Fatalf("cached results %q, want one", files)
	}
	text, err := os.ReadFile(n.path("/var/lib/cni/results/" + files[0]))
	must(n.t, err)
	var cached struct {
		Result struct {
			IPs []struct{ Address netip.Prefix }
		}
	}
	must(n.t, json.Unmarshal(text, &cached))
	if len(cached.Result.IPs) == 0 {
		n.t.Fatalf("no address: %s", text)
	}
	return cached.Result.IPs[0].Address.Addr()
}

// saysNoNotes fails the test unless an error has the message of the plugin in testdata/note.
func saysNoNotes(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "rollback failed") {
		t.Errorf("rollback fails: %v", err)
	}
	for _, want := range []string{`plugin type="note" failed (add)`, "no more notes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
