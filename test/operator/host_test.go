package operator

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// The tests do not use the system bus of the host.
func TestMain(m *testing.M) {
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere"); err != nil {
		panic(err)
	}
	testnet.Main(m)
}

// node is a host with containers web and db on bridge cni0 (network pods), where web publishes port
// 80 as 8080, and an uplink to namespace outside, which also has the address 203.0.113.9.
type node struct {
	*testnet.Net
	t       *testing.T
	dir     string            // for files of commands, which know it as $DIR
	veths   map[string]string // of the containers, on the host
	records map[string]network.Record
	gone    string // a container without its namespace
	waiting int    // connections that wait at each socket
	chains  int    // see [host.Options]
}

func newNode(t *testing.T) *node {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"), testnet.Tool("bridge"))
	n := &node{Net: testnet.New(t, "outside", "web", "db"), t: t, dir: t.TempDir(), veths: map[string]string{},
		records: map[string]network.Record{}}
	outside := n.Container("outside")
	n.Host.Batch("link add up0 type veth peer name e0 netns "+outside.Path(),
		"addr add 192.0.2.1/24 dev up0", "addr add 2001:db8::1/64 dev up0 nodad", "link set up0 up")
	outside.Batch("link set lo up", "link set e0 up", "addr add 192.0.2.2/24 dev e0",
		"addr add 2001:db8::2/64 dev e0 nodad", "addr add 203.0.113.9/32 dev lo",
		"route add fd77::/64 via 2001:db8::1")
	n.Host.Batch("route add default via 192.0.2.2", "route add default via 2001:db8::2")
	n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	n.attach("web", 8080)
	n.attach("db", 0)
	serve(n.t, outside, 9000)
	serve(n.t, n.Container("web"), 80)
	serve(n.t, n.Container("db"), 80)
	serve(n.t, n.Host, 9100)
	return n
}

// attach attaches a container to network pods.
func (n *node) attach(container string, port int) {
	n.t.Helper()
	dir := n.t.TempDir()
	file := filepath.Join(dir, "pods.conflist")
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
		 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.77.0.0/24"}],[{"subnet":"fd77::/64"}]],
		  "routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}},{"type":"firewall"}]}`,
		filepath.Join(filepath.Dir(dir), "addresses"))
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		n.t.Fatal(err)
	}
	pods, err := config.LoadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	client := &network.Client{Caller: plugin.Linked{Plugins: all.Plugins}, StateDir: filepath.Join(dir, "state"),
		CacheDir: network.NoCacheDir}
	q := network.Request{Container: container, IfName: "eth0"}
	q.Netns = n.Container(container).Path()
	if port != 0 {
		q.Capabilities = map[string]json.RawMessage{"portMappings": json.RawMessage(
			fmt.Sprintf(`[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]`, port))}
	}
	var result *cni.Result
	err = n.Host.Run(func() (err error) {
		result, err = client.Add(n.t.Context(), pods, q)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, i := range result.Interfaces {
		if strings.HasPrefix(i.Name, "veth") {
			n.veths[container] = i.Name
		}
	}
	records, err := client.List()
	if err != nil || len(records) != 1 {
		n.t.Fatal(records, err)
	}
	n.records[container] = records[0]
}

// serve listens on a TCP port of all addresses.
func serve(t testing.TB, ns *testnet.Namespace, port int) {
	t.Helper()
	var l net.Listener
	ns.Do(func() {
		var err error
		if l, err = net.Listen("tcp", fmt.Sprint(":", port)); err != nil {
			t.Fatal(err)
		}
	})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
}

// shell runs commands on the host. In them, web, db and outside run commands in that container, and
// $VETH and $DBVETH are the host-side devices.
func (n *node) shell(commands string) {
	n.t.Helper()
	var b strings.Builder
	for _, c := range []string{"web", "db", "outside"} {
		fmt.Fprintf(&b, "%s() { nsenter --net=%s \"$@\"; }\n", c, n.Container(c).Path())
	}
	fmt.Fprintf(&b, "DIR=%s OUTSIDE=%s WEB=%s DB=%s VETH=%s DBVETH=%s\n%s\n", n.dir,
		n.Container("outside").Path(), n.Container("web").Path(), n.Container("db").Path(),
		n.veths["web"], n.veths["db"], commands)
	n.Host.Command("bash", "-ec", b.String())
}

// connect makes the connection of a flow.
func (n *node) connect(flow string) {
	n.t.Helper()
	if err := n.dial(flow, testnet.Patience); err != nil {
		n.t.Fatal(err)
	}
}

// connects reports whether the connection of a flow succeeds at once.
func (n *node) connects(flow string) bool {
	const short = 700 * time.Millisecond
	return n.dial(flow, short) == nil
}

func (n *node) dial(flow string, patience time.Duration) (err error) {
	source, destination, _ := strings.Cut(flow, " ")
	n.space(source).Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", destination, patience); err == nil {
			err = c.Close()
		}
	})
	return err
}

// space returns the namespace of a container, or of the host.
func (n *node) space(name string) *testnet.Namespace {
	if name == "host" {
		return n.Host
	}
	return n.Container(name)
}

// explain answers a question such as "web 203.0.113.9:9000".
func (n *node) explain(flow string) *why.Report {
	n.t.Helper()
	places, q := n.question(flow)
	var report *why.Report
	err := n.Host.Run(func() (err error) { // it may read more rules
		report, err = places.Explain(q)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return report
}

// probe answers a question, and sends a packet.
func (n *node) probe(flow string) *why.Report {
	n.t.Helper()
	places, q := n.question(flow)
	var report *why.Report
	err := n.Host.Run(func() (err error) {
		if report, err = places.Explain(q); err != nil {
			return err
		}
		return places.Probe(n.t.Context(), q, report)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return report
}

// readListeners reads the listeners of a namespace, on a thread in the one of the host.
func (n *node) readListeners(x *host.Namespace) error {
	err := n.Host.Run(x.ReadListeners)
	for i := range x.Listeners {
		x.Listeners[i].Waiting += n.waiting
	}
	return err
}

// question reads the host and the question.
func (n *node) question(flow string) (places *why.Places, q why.Question) {
	n.t.Helper()
	source, destination, _ := strings.Cut(flow, " ")
	o := host.Options{OnlyPaths: true, Chains: n.chains}
	for _, c := range []string{"web", "db", "outside"} {
		if c != n.gone {
			o.Paths = append(o.Paths, n.Container(c).Path())
		}
	}
	var h *host.Host
	err := n.Host.Run(func() (err error) {
		h, err = host.Read(n.t.Context(), o)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	places = &why.Places{Host: h, ReadListeners: n.readListeners}
	for _, c := range []string{"web", "db"} {
		places.Records = append(places.Records, n.records[c])
	}
	from, err := places.Find(source, n.space(source).Path())
	if err != nil {
		n.t.Fatal(err)
	}
	q, port := why.Question{Source: from.ID}, ""
	if to, err := netip.ParseAddrPort(destination); err == nil {
		q.To, port = to.Addr(), fmt.Sprint(to.Port())
	} else {
		q.To = netip.MustParseAddr(destination)
	}
	if err := q.SetPort(port, false); err != nil {
		n.t.Fatal(err)
	}
	return places, q
}
