package interop

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestUninstall hands attached containers over to Debian's upstream plugins: host ports answer, an
// open connection continues, upstream's DEL succeeds with the input that libcni passes, and Tenon
// leaves nothing on the node.
func TestUninstall(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	l := upstreamLab(t)
	outside := l.Uplink()
	l.write(podNetwork, `{"cniVersion":"1.0.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.85.0.0/16"}],[{"subnet":"fd00:85::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}},
		{"type":"bandwidth","ingressRate":100000000,"ingressBurst":80000000,"egressRate":100000000,"egressBurst":80000000},
		{"type":"firewall"},
		{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}]}`)
	for _, name := range []string{"web", "other"} {
		l.container(name)
	}
	l.add("web", 8080)
	l.must("del", "pods", "web", "--id", "web")       // makes shared chains
	for _, family := range []string{"ipv4", "ipv6"} { // Tenon's settings on the bridge, which stays
		l.run("sh", "-c", "echo 0 > /proc/sys/net/"+family+"/conf/cni0/accept_redirects")
	}
	before := l.snapshot()

	l.dir = plugins
	l.add("web", 8080)
	l.add("other", 8081)
	greeted(t, outside, "192.0.2.1:8080", true)
	if out, err := l.tenon("uninstall"); err == nil || !strings.Contains(out, "tenon uninstall --keep-attachments --net-dir "+netDir) {
		t.Errorf("uninstall with attachments: %v\n%s", err, out)
	}
	connection := open(t, outside, "192.0.2.1:8080")
	l.must("uninstall", "--keep-attachments")
	connection.goesOn()
	for _, from := range []*testnet.Namespace{l.Host, outside} {
		greeted(t, from, "192.0.2.1:8080", true)
		greeted(t, from, "192.0.2.1:8081", true)
	}
	if left := l.run("nft", "list", "tables"); strings.Contains(left, "tenon") {
		t.Errorf("tables left:\n%s", left)
	}
	if left := l.run("find", "/opt", "/run", "/var/lib", "-name", "*tenon*", "-o", "-name", ".owners", "-o", "-path", plugins+"/*"); left != "" {
		t.Errorf("files left:\n%s", left)
	}

	l.must("uninstall") // as the removal of a package does, after the attachments are handed over

	l.dir = upstream // libcni has the records now
	if out := l.run(l.command, "ps", "--json"); strings.Count(out, `"runtime": "libcni"`) != 2 {
		t.Errorf("attachments: %s", out)
	}
	l.must("del", "pods", "web", "--id", "web")
	greeted(t, outside, "192.0.2.1:8080", false)
	greeted(t, outside, "192.0.2.1:8081", true)
	l.must("del", "pods", "other", "--id", "other")
	for _, name := range []string{"web", "other"} {
		l.run("ip", "netns", "del", name)
	}
	l.unchanged(before)
	l.nothingKept()
}

// opened is a connection with half of a request sent.
type opened struct {
	t *testing.T
	net.Conn
}

func open(t *testing.T, from *testnet.Namespace, address string) opened {
	t.Helper()
	c := opened{t: t}
	must(t, from.Run(func() (err error) {
		c.Conn, err = net.DialTimeout("tcp", address, 10*time.Second)
		return err
	}))
	t.Cleanup(func() { c.Close() })
	_, err := io.WriteString(c, "GET / HTTP/1.0\r\n")
	must(t, err)
	return c
}

// goesOn sends the rest of the request and fails the test without an answer.
func (c opened) goesOn() {
	c.t.Helper()
	must(c.t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err := io.WriteString(c, "\r\n")
	must(c.t, err)
	if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), greeting) {
		c.t.Errorf("the earlier connection answered %q, %v", answer, err)
	}
}
