//go:build programs

package interop

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestProgramNerdctl: nerdctl reads the version line of firewall and isolates the containers of a
// network with icc=false from each other. They are reachable at their published ports all the same,
// and removing them leaves nothing behind.
func TestProgramNerdctl(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.search = searchFrom(compat.dir(t, "containerd") + ":" + compat.dir(t, "nerdctl"))
	c := newContainerdOn(n)
	n.install()
	n.privateEtc()
	outside := n.Uplink()
	c.nerdctl("network", "create", "--subnet", "10.99.0.0/24", "open")
	created := c.nerdctl("network", "create", "--subnet", "10.98.0.0/24", "--opt",
		"com.docker.network.bridge.enable_icc=false", "closed")
	if strings.Contains(created, "isolated") {
		t.Errorf("nerdctl warns: %s", created)
	}
	for _, network := range []string{"open", "closed"} {
		c.started(network, "first", 8080)
		c.nerdctl("rm", "--force", "first") // leaves the shared objects
	}
	before := n.snapshot()
	for i, network := range []string{"open", "open", "closed", "closed"} {
		c.started(network, fmt.Sprint("c", i), 8080+i)
		greeted(t, outside, fmt.Sprint("192.0.2.1:", 8080+i), true)
	}
	c.reaches("c0", "c1", true)
	c.reaches("c2", "c3", false)
	c.nerdctl("rm", "--force", "c0", "c1", "c2", "c3")
	n.unchanged(before)
	n.nothingKept()
}

// started runs a container with a published port.
func (c *containerd) started(network, name string, port int) {
	c.t.Helper()
	c.nerdctl("run", "--detach", "--pull", "never", "--net", network, "--name", name,
		"--cgroup-parent", "/"+c.cgroup, "--publish", fmt.Sprint(port, ":80"), imageName)
}

// reaches checks whether a container reaches the server of another one.
func (c *containerd) reaches(from, to string, want bool) {
	c.t.Helper()
	address := net.JoinHostPort(c.property(to, "NetworkSettings.IPAddress"), "80")
	var err error
	c.inPod("/proc/"+c.property(from, "State.Pid")+"/ns/net", func() error {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp4", address, time.Second); err == nil {
			err = conn.Close()
		}
		return nil
	})
	if got := err == nil; got != want {
		c.t.Errorf("%s to %s: %v, want a connection: %t", from, to, err, want)
	}
}

// property returns what nerdctl knows about a container.
func (c *containerd) property(container, name string) string {
	c.t.Helper()
	return strings.TrimSpace(c.nerdctl("inspect", "--format", "{{."+name+"}}", container))
}

// nerdctl runs nerdctl, and returns what it prints, also as warnings.
func (c *containerd) nerdctl(args ...string) string {
	c.t.Helper()
	all := append([]string{"nerdctl", "--namespace", "k8s.io", "--snapshotter", "native",
		"--cgroup-manager", "cgroupfs", "--cni-path", plugins}, args...)
	out, err := c.command(all...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("nerdctl %q: %v\n%s", args, err, out)
	}
	return string(out)
}
