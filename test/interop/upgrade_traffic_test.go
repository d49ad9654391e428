package interop

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// trafficChain is a network of the tests under traffic. BACKEND is nftables or iptables, and SUBNET
// the second group of the subnet of each family.
const trafficChain = `{"cniVersion":"1.1.0","name":"NAME","plugins":[
	{"type":"bridge","bridge":"br-NAME","isGateway":true,"ipMasq":true,"ipMasqBackend":"BACKEND","hairpinMode":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.SUBNET.0.0/16"}],[{"subnet":"fd00:SUBNET::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
	{"type":"portmap","backend":"BACKEND","snat":true,"capabilities":{"portMappings":true}},
	{"type":"bandwidth","ingressRate":1000000000,"ingressBurst":800000000,"egressRate":1000000000,"egressBurst":800000000},
	{"type":"firewall","backend":"BACKEND","ingressPolicy":"same-bridge"}]}`

// trafficLab is a lab with networks of one backend, and a host outside that counts packets with
// addresses of containers.
type trafficLab struct {
	*lab
	earlier earlier
	this    string // the command of this version
	outside *testnet.Namespace
	leaked  func() // checks that no packet left the host with the address of a container
}

func newTrafficLab(t *testing.T, e earlier, backend string, subnets map[string]string) *trafficLab {
	t.Helper()
	testnet.Require(t, testnet.Tool("nft"))
	if backend == "iptables" {
		testnet.Require(t, testnet.Tool("iptables-restore"))
	}
	l := &trafficLab{lab: newLab(t, e.dir), earlier: e}
	l.this, l.outside = l.command, l.Uplink()
	for name, subnet := range subnets {
		l.write(netDir+"/"+name+".conflist",
			strings.NewReplacer("NAME", name, "BACKEND", backend, "SUBNET", subnet).Replace(trafficChain))
	}
	testnet.Echo(t, l.outside, 80)
	l.leaked = unseen(t, l.outside, "packets with the address of a container", "ip saddr 10.0.0.0/8", "ip6 saddr fd00::/8")
	return l
}

// turn makes the lab use an earlier version, or this one.
func (l *trafficLab) turn(earlier bool) {
	l.command, l.dir = l.this, plugins
	if earlier {
		l.command, l.dir = l.earlier.command, l.earlier.dir
	}
}

// attach attaches a container to a network and publishes its port 80 at a port of the host.
func (l *trafficLab) attach(network, name string, port int) {
	l.t.Helper()
	var mappings []string
	for _, protocol := range []string{"tcp", "udp"} {
		mappings = append(mappings, fmt.Sprintf(`{"hostPort":%d,"containerPort":80,"protocol":%q}`, port, protocol))
	}
	l.must("add", network, name, "--id", name, "--cap", "portMappings=["+strings.Join(mappings, ",")+"]")
}

// serve creates a container with a service of [testnet.Echo], and returns its namespace.
func (l *trafficLab) serve(name string) *netns.NS {
	l.t.Helper()
	l.run("ip", "netns", "add", name)
	ns, err := netns.Open(l.path("/run/netns/" + name))
	must(l.t, err)
	l.t.Cleanup(func() { ns.Close() })
	testnet.Echo(l.t, ns, 80)
	return ns
}

// warm attaches and detaches a container with both versions, which leaves the shared objects.
func (l *trafficLab) warm(networks ...string) {
	l.t.Helper()
	for _, earlier := range []bool{true, false} {
		l.turn(earlier)
		for _, network := range networks {
			l.run("ip", "netns", "add", "warm")
			l.attach(network, "warm", 8080)
			l.must("del", network, "warm", "--id", "warm")
			l.run("ip", "netns", "del", "warm")
		}
	}
}

// addresses returns the addresses of a container with a port, IPv4 first.
func (l *trafficLab) addresses(name string, port int) (all []string) {
	l.t.Helper()
	for line := range strings.Lines(l.run("ip", "-n", name, "-o", "address", "show", "dev", "eth0", "scope", "global")) {
		a := netip.MustParsePrefix(strings.Fields(line)[3]).Addr()
		all = append(all, netip.AddrPortFrom(a, uint16(port)).String())
	}
	return all
}

// probe sends datagrams to addresses that must not receive any, until the test calls stop.
func (l *trafficLab) probe(from testnet.Space, addresses []string) (stop func()) {
	l.t.Helper()
	stopped, running := make(chan struct{}), sync.WaitGroup{}
	for _, a := range addresses {
		c, err := testnet.Dial(from, "udp", a)
		must(l.t, err)
		running.Go(func() {
			defer c.Close()
			for {
				select {
				case <-stopped:
					return
				case <-time.After(time.Millisecond):
					_, _ = c.Write([]byte("probe")) // an answer to the one before can be an error
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(stopped); running.Wait() })
	l.t.Cleanup(stop)
	return stop
}

// beyond are the services outside.
var beyond = []string{"192.0.2.2:80", "[2001:db8::2]:80"}

// published returns the service of a container that is published at a port of the host.
func published(port int) []string {
	return []string{fmt.Sprintf("192.0.2.1:%d", port), fmt.Sprintf("[2001:db8::1]:%d", port)}
}

// TestUpgradeUnderTraffic attaches containers with an earlier version. While packets travel, this
// version checks, repairs, attaches, detaches and collects, in turn with the earlier one. No packet
// may be lost, leave the host with the address of a container, or enter an isolated bridge. Nothing
// may remain. A closed host forwards only packets that a plugin admits.
func TestUpgradeUnderTraffic(t *testing.T) {
	fromEarlier(t, func(t *testing.T, e earlier) {
		for _, backend := range []string{"nftables", "iptables"} {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, closed: %t", backend, closed), func(t *testing.T) {
					t.Parallel()
					upgradeUnderTraffic(t, e, backend, closed)
				})
			}
		}
	})
}

func upgradeUnderTraffic(t *testing.T, e earlier, backend string, closed bool) {
	l := newTrafficLab(t, e, backend, map[string]string{"pods": "85", "other": "86"})
	l.warm("pods", "other")
	if policy := []string{"nft", "chain inet tenon forward { policy drop; }"}; closed {
		if backend == "iptables" {
			policy = []string{"sh", "-c", "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP"}
		}
		l.run(policy...)
	}
	before := l.snapshot()
	l.turn(true)
	web, peer, foreign := l.serve("web"), l.serve("peer"), l.serve("foreign")
	l.attach("pods", "web", 8080)
	l.attach("pods", "peer", 8081)
	l.attach("other", "foreign", 8082)
	for i, name := range []string{"gone", "lost"} {
		l.run("ip", "netns", "add", name)
		l.attach("pods", name, 8090+i)
	}

	isolated := unseen(t, web, "packets of an isolated bridge", "udp dport 9")
	all := newFlows(t)
	all.start("web to outside", web, beyond...)
	all.start("foreign to outside", foreign, beyond...)
	all.start("the host to web", l.Host, append(published(8080), "127.0.0.1:8080")...)
	if !closed { // the plugins admit no connections from outside
		all.start("outside to web", l.outside, published(8080)...)
	}
	all.start("web to itself", web, published(8080)...)
	all.start("peer to web", peer, append(published(8080), l.addresses("web", 80)...)...)
	probes := l.probe(foreign, l.addresses("web", 9))

	for range 2 {
		l.alternate(all)
	}
	l.must("del", "pods", "gone", "--id", "gone")
	all.advance()
	l.run("ip", "netns", "del", "lost")
	l.must("gc", "pods", "--keep", "web/eth0", "--keep", "peer/eth0")
	all.advance()
	probes()
	isolated()
	all.stop()
	l.leaked()
	for network, names := range map[string][]string{"pods": {"web", "peer"}, "other": {"foreign"}} {
		for _, name := range names {
			l.must("check", network, name, "--id", name)
			l.must("del", network, name, "--id", name)
		}
	}
	for _, name := range []string{"web", "peer", "foreign", "gone"} {
		l.run("ip", "netns", "del", name)
	}
	l.unchanged(before)
	l.nothingKept()
}

// alternate lets this version, the earlier one and this one change network pods in turn.
func (l *trafficLab) alternate(all *flows) {
	l.t.Helper()
	l.turn(false)
	for _, name := range []string{"web", "peer", "gone"} {
		l.must("check", "pods", name, "--id", name)
		all.advance()
	}
	l.must("repair")
	all.advance()
	fresh := l.serve("fresh")
	l.attach("pods", "fresh", 8083)
	added := newFlows(l.t)
	added.start("fresh to outside", fresh, beyond...)
	added.start("the host to fresh", l.Host, published(8083)...)
	all.advance()
	l.turn(true)
	l.run("ip", "netns", "add", "late")
	l.attach("pods", "late", 8084)
	all.advance()
	added.advance()
	l.turn(false)
	l.must("check", "pods", "late", "--id", "late")
	l.must("check", "pods", "fresh", "--id", "fresh")
	l.must("del", "pods", "late", "--id", "late")
	all.advance()
	added.stop()
	l.must("del", "pods", "fresh", "--id", "fresh")
	for _, name := range []string{"late", "fresh"} {
		l.run("ip", "netns", "del", name)
	}
}

// TestUpgradeSharedAddress attaches containers of two networks, with the same address, with an
// earlier version. With nftables, that version passes the rules of the first container on to the
// second. After a repair, this version detaches either; the packets of the other one still leave with
// the address of the host.
func TestUpgradeSharedAddress(t *testing.T) {
	fromEarlier(t, func(t *testing.T, e earlier) {
		for _, backend := range []string{"nftables", "iptables"} {
			t.Run(backend, func(t *testing.T) {
				t.Parallel()
				upgradeSharedAddress(t, e, backend)
			})
		}
	})
}

func upgradeSharedAddress(t *testing.T, e earlier, backend string) {
	l := newTrafficLab(t, e, backend, map[string]string{"first": "85", "second": "85"})
	l.warm("first", "second")
	before := l.snapshot()
	l.turn(true)
	first, second := l.serve("first"), l.serve("second")
	l.attach("first", "first", 8080)
	l.attach("second", "second", 8081)
	if a, b := l.addresses("first", 80), l.addresses("second", 80); !slices.Equal(a, b) {
		t.Fatalf("the addresses differ: %q, %q", a, b)
	}
	check := func(names ...string) {
		t.Helper()
		for _, name := range names {
			l.must("check", name, name, "--id", name)
		}
	}
	flows := newFlows(t)
	flows.start("first to outside", first, beyond...)
	flows.start("first to itself", first, published(8080)...)
	flows.start("the host to first", l.Host, published(8080)...)
	flows.start("outside to first", l.outside, published(8080)...)
	l.turn(false)
	l.must("repair")
	flows.advance()
	check("first", "second")
	for range 2 {
		l.must("del", "second", "second", "--id", "second")
		flows.advance()
		check("first")
		l.attach("second", "second", 8081)
		flows.advance()
		check("first", "second")
	}
	flows.stop()
	l.must("del", "first", "first", "--id", "first")
	check("second")
	for _, a := range l.addresses("second", 80) { // the bridge of the first network stays
		l.run("ip", "route", "add", netip.MustParseAddrPort(a).Addr().String(), "dev", "br-second")
	}
	flows = newFlows(t)
	flows.start("second to outside", second, beyond...)
	flows.start("outside to second", l.outside, published(8081)...)
	flows.advance()
	flows.stop()
	l.leaked()
	for _, a := range l.addresses("second", 80) {
		l.run("ip", "route", "del", netip.MustParseAddrPort(a).Addr().String(), "dev", "br-second")
	}
	l.must("del", "second", "second", "--id", "second")
	for _, name := range []string{"first", "second"} {
		l.run("ip", "netns", "del", name)
	}
	l.unchanged(before)
	l.nothingKept()
}
