//go:build clients

package interop

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// newClients starts the containerd that scripts/test-clients built.
func newClients(t *testing.T) *containerd {
	t.Helper()
	if os.Getenv(clientsDir) == "" {
		t.Fatalf("%s is not set: run scripts/test-clients", clientsDir)
	}
	c := newContainerd(t)
	if v, _ := c.must("Version", object{})["runtimeVersion"].(string); !strings.HasPrefix(v, "v2.") && !strings.HasPrefix(v, "2.") {
		t.Fatalf("containerd is %q, want version 2", v)
	}
	return c
}

// configureSmall writes a network with GC and STATUS, few addresses, and more plugins after
// portmap.
func (c *containerd) configureSmall(subnet, more string) {
	c.t.Helper()
	c.write(podNetwork, `{"cniVersion":"1.1.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local",
			"ranges":[[{"subnet":"`+subnet+`"}],[{"subnet":"fd00:85::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}`+more+`]}`)
	c.await("network", c.ready)
}

// TestClientsStatus: containerd 2 calls STATUS. A broken plugin makes the node not ready, a full
// address pool does not.
func TestClientsStatus(t *testing.T) {
	t.Parallel()
	c := newClients(t)
	c.install()
	c.installNote()
	c.configureSmall("10.85.0.0/29", noteConf)
	c.write(noteDir+"/refuse", "")
	c.await("STATUS", func() error {
		if ready, message := c.networkReady(); ready || !strings.Contains(message, "no more notes") {
			return fmt.Errorf("ready: %t, %s", ready, message)
		}
		return nil
	})
	c.run("rm", noteDir+"/refuse")
	c.await("network", c.ready)

	var pods []string
	for i := range 5 {
		pods = append(pods, c.sandbox(fmt.Sprint("pod", i), 8080+i))
	}
	if _, err := c.call("RunPodSandbox", c.pod("late", 0)); err == nil || !strings.Contains(err.Error(), "10.85.0.") {
		t.Errorf("a pod without a free address: %v, want an error that names the range", err)
	}
	if err := c.ready(); err != nil {
		t.Errorf("with a full pool: %v", err)
	}
	c.remove(pods[0])
	pods[0] = c.sandbox("late", 8080)
	for _, id := range pods {
		c.remove(id)
	}
	c.nothingKept()
}

// TestClientsCollect: `tenon gc` removes attachments without a pod of containerd 2 and keeps the
// others.
func TestClientsCollect(t *testing.T) {
	t.Parallel()
	c := newClients(t)
	tenon := c.install()
	outside := c.Uplink()
	c.configureSmall("10.85.0.0/29", "")
	c.remove(c.sandbox("first", 8080))
	before := c.snapshot()
	web := c.sandbox("web", 8080)
	lost := c.sandbox("lost", 8081)
	_, path := c.addresses(lost)
	c.kill()
	c.run("sh", "-c", `umount "$0" && rm "$0"`, path)
	c.start()
	c.run(tenon, "gc", "pods", "--all-runtimes", "--keep", web+"/eth0", "--net-dir", netDir)
	c.served(web, "8080", outside)
	next := c.sandbox("next", 8081) // the port is free
	c.served(next, "8081", outside)
	for _, id := range []string{web, next, lost} {
		c.remove(id)
	}
	c.unchanged(before)
	c.nothingKept()
}

// TestClientsVanished: the next pod gets the host port of a pod that vanished without DEL.
func TestClientsVanished(t *testing.T) {
	t.Parallel()
	c := newClients(t)
	c.install()
	outside := c.Uplink()
	c.configureSmall("10.85.0.0/29", "")
	lost := c.sandbox("lost", 8080)
	_, path := c.addresses(lost)
	c.run("sh", "-c", `nsenter --net="$0" ip link delete eth0`, path)
	next := c.sandbox("next", 8080)
	c.served(next, "8080", outside)
	c.remove(lost)
	c.served(next, "8080", outside)
	c.remove(next)
	c.nothingKept()
}

// TestClientsKubeProxy: with the rules of kube-proxy, a pod sees the address of a pod that reaches
// it through a service, and its host port works too.
func TestClientsKubeProxy(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	c := newClients(t)
	c.install()
	outside := c.Uplink()
	c.Host.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
	c.configureSmall("10.85.0.0/29", "")
	server, client := c.sandbox("server", 80), c.sandbox("client", 0)
	addresses, path := c.addresses(server)
	clients, clientPath := c.addresses(client)
	rules, err := os.ReadFile("../../plugins/portmap/testdata/kube-proxy.rules")
	must(t, err)
	c.write("/run/rules", strings.NewReplacer("$POD:$TARGET", addresses[0]+":8000", "$CLUSTERIP", "10.96.0.10", "$PODS", "10.85.0.0/16",
		"$PORT", "80", "$NODEPORT", "30080", "$POD", addresses[0]).Replace(string(rules)))
	c.run("iptables-restore", "--noflush", "/run/rules")

	seen := c.listen(path, 8000)
	for _, at := range []string{"10.96.0.10:80", "192.0.2.1:30080"} {
		c.dial(clientPath, at)
		select {
		case from := <-seen:
			if from.String() != clients[0] {
				t.Errorf("through %s the pod sees %s, want %s", at, from, clients[0])
			}
		case <-time.After(time.Minute):
			t.Fatalf("no connection arrives through %s", at)
		}
	}
	c.served(server, "80", outside)
	c.remove(server)
	c.remove(client)
	c.nothingKept()
}

// inPod calls do in the network namespace of a pod.
func (n *node) inPod(path string, do func() error) {
	n.t.Helper()
	ns, err := netns.Open(n.path(strings.TrimPrefix(path, "/var"))) // /var/run is a symlink that leads out of the node
	must(n.t, err)
	defer ns.Close()
	must(n.t, ns.Run(do))
}

// listen accepts connections in a pod and returns their source addresses.
func (c *containerd) listen(path string, port int) <-chan netip.Addr {
	c.t.Helper()
	seen := make(chan netip.Addr, 1)
	c.inPod(path, func() error {
		l, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			return err
		}
		c.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				seen <- conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
				conn.Close()
			}
		}()
		return nil
	})
	return seen
}

// dial connects to an address from a pod.
func (c *containerd) dial(path, address string) {
	c.t.Helper()
	c.inPod(path, func() error {
		conn, err := net.DialTimeout("tcp4", address, time.Minute)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// awaitLong is await with more patience, for periodic work of kubelet.
func (c *containerd) awaitLong(what string, try func() error) {
	c.t.Helper()
	err := try()
	for end := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(end); err = try() {
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}
