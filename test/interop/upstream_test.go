package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// lab is a node with Tenon's command and containers that serve the greeting.
type lab struct {
	*node
	command string
	dir     string // of plugins
}

func newLab(t *testing.T, dir string) *lab {
	t.Helper()
	testnet.Require(t, static("busybox"))
	l := &lab{node: newNode(t), dir: dir}
	l.command = l.install()
	l.write("/run/www/index.html", greeting)
	return l
}

// upstreamLab returns a lab with Debian's upstream plugins.
func upstreamLab(t *testing.T) *lab {
	t.Helper()
	for _, name := range []string{
		"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning",
	} {
		testnet.Require(t, testnet.Tool(upstream+"/"+name))
	}
	return newLab(t, upstream)
}

// add attaches a container to network pods and publishes its port 80 at a port of the host.
func (l *lab) add(name string, port int) {
	l.t.Helper()
	mapping := fmt.Sprintf(`portMappings=[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]`, port)
	l.must("add", "pods", name, "--id", name, "--cap", mapping)
}

// container creates a container that serves the greeting.
func (l *lab) container(name string) {
	l.t.Helper()
	l.run("ip", "netns", "add", name)
	l.run("ip", "netns", "exec", name, "busybox", "httpd", "-p", "80", "-h", "/run/www")
}

// tenon runs the command and returns its output, standard error included.
func (l *lab) tenon(args ...string) (string, error) {
	l.t.Helper()
	args = append([]string{l.command}, args...)
	out, err := l.node.command(append(args, "--plugin-dir", l.dir, "--net-dir", netDir)...).CombinedOutput()
	return string(out), err
}

func (l *lab) must(args ...string) string {
	l.t.Helper()
	out, err := l.tenon(args...)
	if err != nil {
		l.t.Fatalf("tenon %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TestUpstreamPlugins: a chain of the upstream plugins under Tenon's runtime leaves nothing behind
// after ADD, CHECK, DEL and GC. They are too old for GC; recorded attachments get DEL.
func TestUpstreamPlugins(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	upstreamLab(t).chain()
}

// chain attaches and detaches containers with a chain of upstream plugins.
func (l *lab) chain() {
	t := l.t
	t.Helper()
	outside := l.Uplink()
	l.write(podNetwork, `{"cniVersion":"1.0.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.85.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}},
		{"type":"bandwidth","ingressRate":100000000,"ingressBurst":80000000,"egressRate":100000000,"egressBurst":80000000},
		{"type":"firewall"},
		{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}]}`)
	containers := []string{"web", "other", "plain"}
	for _, name := range containers {
		l.container(name)
	}
	l.add("web", 8080)
	l.must("del", "pods", "web", "--id", "web") // leaves the shared objects
	before := l.snapshot()
	l.add("web", 8080)
	l.add("other", 8081)
	l.must("add", "pods", "plain", "--id", "plain")
	l.must("check", "pods", "plain", "--id", "plain") // Debian's portmap fails in CHECK of ports
	for _, from := range []*testnet.Namespace{l.Host, outside} {
		greeted(t, from, "192.0.2.1:8080", true)
		greeted(t, from, "192.0.2.1:8081", true)
	}
	l.must("del", "pods", "plain", "--id", "plain")
	l.must("gc", "pods", "--keep", "other/eth0")
	greeted(t, outside, "192.0.2.1:8080", false)
	greeted(t, outside, "192.0.2.1:8081", true)
	l.must("del", "pods", "other", "--id", "other")
	l.unchanged(before)
	for _, name := range containers {
		l.run("ip", "netns", "del", name)
	}
	l.nothingKept()
}
