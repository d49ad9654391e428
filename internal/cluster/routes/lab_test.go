package routes_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/bridge"
)

func TestMain(m *testing.M) {
	if os.Getenv(killAt) != "" {
		killed()
	}
	plugintest.Main(m, all.Plugins...)
}

// lab is a cluster: hosts with a bridge network each, on one link or on two with a router between
// them, and a server outside.
type lab struct {
	t       *testing.T
	net     *testnet.Net
	outside *testnet.Namespace
	nodes   []*node
	mode    routes.Mode
	backend string // of masquerading; "" lets the plugin choose
	shared  bool   // all containers have addresses of one block
}

// node is a host of the lab.
type node struct {
	*plugintest.Runtime
	lab    *lab
	router *routes.Router
	own    routes.Peer
	alive  bool
	report routes.Report
}

// pools are the networks of all nodes.
var pools = []netip.Prefix{netip.MustParsePrefix("10.64.0.0/12"), netip.MustParsePrefix("fd00:64::/48")}

// underlay selects the families of the addresses of the hosts.
type underlay string

const (
	dual  underlay = "dual"
	only4 underlay = "IPv4"
	only6 underlay = "IPv6"
)

// newLab creates a lab with three nodes. If split, the third is behind a router.
func newLab(t *testing.T, mode routes.Mode, under underlay, split bool) *lab {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT, kernel.FeatureBridge,
		kernel.FeatureVXLAN, kernel.FeatureIPv6), testnet.Tool("nft"))
	l := &lab{t: t, net: testnet.New(t), mode: mode}
	l.build(under, split)
	return l
}

func (l *lab) build(under underlay, split bool) {
	l.t.Helper()
	router := l.net.Host
	router.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv6.conf.default.accept_dad=0")
	for i, lan := range []string{"lan-a", "lan-b"} {
		router.Batch("link add "+lan+" type bridge", "link set "+lan+" up",
			fmt.Sprintf("address add 192.0.%d.254/24 dev %s", 2+i, lan),
			fmt.Sprintf("address add 2001:db8:%d::fe/64 dev %s nodad", i, lan))
	}
	l.outside = l.net.Container("outside")
	l.plug(l.outside, "outside", "lan-a")
	l.address(l.outside, dual, "192.0.2.200", "2001:db8::c8")
	for i := 1; i <= 3; i++ {
		lan := 0
		if split && i == 3 {
			lan = 1
		}
		l.join(i, lan, under)
	}
}

// plug connects eth0 of a namespace with a link of the router.
func (l *lab) plug(ns *testnet.Namespace, name, lan string) {
	l.net.Host.Batch(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", name, ns.Path()),
		fmt.Sprintf("link set %s master %s up", name, lan))
	ns.Command("sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
	ns.Command("ip", "link", "set", "eth0", "up")
}

// address gives eth0 addresses and default routes.
func (l *lab) address(ns *testnet.Namespace, under underlay, addr4, addr6 string) {
	gateway := func(a, last string) string { return a[:strings.LastIndexAny(a, ".:")+1] + last }
	if under != only6 {
		ns.Batch("address add "+addr4+"/24 dev eth0", "route replace default via "+gateway(addr4, "254"))
	}
	if under != only4 {
		ns.Batch("address add "+addr6+"/64 dev eth0 nodad",
			"route replace default via "+gateway(addr6, "fe"))
	}
}

// join adds node number n on a link.
func (l *lab) join(n, lan int, under underlay) *node {
	l.t.Helper()
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"pods","type":"bridge","bridge":"pods",
		"isDefaultGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.64.%d.0/26"}],[{"subnet":"fd00:64:0:%d::/122"}]]}}`, n, n)
	blocks := prefixes(fmt.Sprintf("10.64.%d.0/26", n), fmt.Sprintf("fd00:64:0:%d::/122", n))
	if l.shared {
		conf = strings.NewReplacer(
			fmt.Sprintf(`"10.64.%d.0/26"`, n),
			fmt.Sprintf(`"10.64.200.0/26","rangeStart":"10.64.200.1%d"`, n),
			fmt.Sprintf(`"fd00:64:0:%d::/122"`, n),
			fmt.Sprintf(`"fd00:64:0:200::/122","rangeStart":"fd00:64:0:200::1%d"`, n),
		).Replace(conf)
		blocks = prefixes(fmt.Sprintf("10.64.200.1%d/32", n), fmt.Sprintf("fd00:64:0:200::1%d/128", n))
	}
	if l.backend != "" {
		conf = strings.Replace(conf, `"ipMasq":`, `"ipMasqBackend":"`+l.backend+`","ipMasq":`, 1)
	}
	x := &node{Runtime: plugintest.NewRuntime(l.t, bridge.Plugin, conf), lab: l, alive: true}
	x.Host.Command("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1")
	l.plug(x.Host, fmt.Sprintf("n%d", n), "lan-"+string("ab"[lan]))
	addr4, addr6 := fmt.Sprintf("192.0.%d.%d", 2+lan, n), fmt.Sprintf("2001:db8:%d::%d", lan, n)
	l.address(x.Host, under, addr4, addr6)
	x.own = routes.Peer{
		Name: fmt.Sprintf("n%d", n), MAC: routes.VTEPMAC(fmt.Sprintf("identity %d", n)),
		Blocks: blocks,
	}
	if under != only6 {
		x.own.Addrs = append(x.own.Addrs, netip.MustParseAddr(addr4))
	}
	if under != only4 {
		x.own.Addrs = append(x.own.Addrs, netip.MustParseAddr(addr6))
	}
	x.restart()
	l.nodes = append(l.nodes, x)
	return x
}

// restart starts the router of a node with its present addresses.
func (n *node) restart() {
	n.lab.t.Helper()
	r, err := routes.New(routes.Options{Mode: n.lab.mode, Cluster: "lab", Nodes: n.own.Addrs})
	if err != nil {
		n.lab.t.Fatal(err)
	}
	n.router = r
}

// want returns the state for a node.
func (l *lab) want(n *node) routes.Want {
	w := routes.Want{Own: n.own, Pools: pools}
	for _, other := range l.nodes {
		if other != n && other.alive {
			w.Peers = append(w.Peers, other.own)
		}
	}
	return w
}

// apply calls Apply on all nodes. There must be no problems.
func (l *lab) apply() {
	l.t.Helper()
	for _, n := range l.nodes {
		if n.alive {
			n.apply()
		}
	}
}

func (n *node) apply() routes.Report {
	n.lab.t.Helper()
	report, err := n.try(n.lab.want(n))
	if err := errors.Join(append(report.Problems, err)...); err != nil {
		n.lab.t.Fatalf("%s: %v", n.own.Name, err)
	}
	n.report = report
	return report
}

func (n *node) try(w routes.Want) (report routes.Report, err error) {
	n.Host.Do(func() { report, err = n.router.Apply(n.lab.t.Context(), w) })
	return report, err
}

func (n *node) remove() {
	n.lab.t.Helper()
	n.Host.Do(func() {
		if err := n.router.Remove(context.Background()); err != nil {
			n.lab.t.Fatal(err)
		}
	})
}

// pod attaches a container with the MTU of the report, and returns its addresses, IPv4 first.
func (n *node) pod(name string) (addrs []netip.Addr) {
	n.lab.t.Helper()
	n.Conf["mtu"] = n.report.MTU
	for _, ip := range n.Add(name).IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	return addrs
}

// pods attaches a container to each node.
func (l *lab) pods() map[*node][]netip.Addr {
	l.t.Helper()
	pods := map[*node][]netip.Addr{}
	for _, n := range l.nodes {
		pods[n] = n.pod("pod")
	}
	return pods
}

// full checks that each container reaches each other one: by ping, by packets of the size of the
// MTU, and by TCP, always under its own address, and that the outside sees the address of the node.
func (l *lab) full(pods map[*node][]netip.Addr) {
	l.t.Helper()
	for from, own := range pods {
		source := from.Container("pod")
		for to, addrs := range pods {
			if from == to {
				continue
			}
			for i, addr := range addrs {
				testnet.Reaches(l.t, source, addr, true)
				if !l.shared { // the reply would not come from the tunnel
					testnet.Reaches(l.t, from.Host, addr, true)
				}
				target := to.Container("pod")
				datagram(l.t, source, target, addr, from.report.MTU)
				if seen := transfer(l.t, source, target, addr); seen != own[i] {
					l.t.Errorf("%s sees %s as %s", addr, own[i], seen)
				}
			}
		}
		for _, a := range []string{"192.0.2.200", "2001:db8::c8"} {
			server := netip.MustParseAddr(a)
			i := slices.IndexFunc(from.own.Addrs, func(x netip.Addr) bool { return x.Is4() == server.Is4() })
			if i < 0 {
				continue
			}
			if got := testnet.SourceSeen(l.t, source, l.outside, server); got != from.own.Addrs[i] {
				l.t.Errorf("outside sees %s as %s, want %s", own, got, from.own.Addrs[i])
			}
		}
	}
}

func listen(t *testing.T, ns *testnet.Namespace, addr netip.Addr) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	var err error
	ns.Do(func() {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// limit checks that the kernel learns a limit for packets that must not be fragmented, and that
// packets of this size arrive.
func limit(t *testing.T, from, to *testnet.Namespace, addr netip.Addr, size int) {
	t.Helper()
	server := listen(t, to, addr)
	client := whole(t, from, server)
	headers := headersOf(addr)
	testnet.Eventually(t, func() error { // until the router has told
		_, err := client.Write(make([]byte, size-headers+1))
		if !errors.Is(err, syscall.EMSGSIZE) {
			return fmt.Errorf("%s to %s: %d bytes: %v, want EMSGSIZE", from.Name, addr, size+1, err)
		}
		return nil
	})
	testnet.Eventually(t, func() error { // the first write can return an earlier error
		_, err := client.Write(make([]byte, size-headers))
		return err
	})
	if err := server.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 1<<16)); err != nil || n != size-headers {
		t.Errorf("%s to %s: received %d bytes of %d: %v", from.Name, addr, n, size-headers, err)
	}
}

// headersOf returns the size of the headers of IP and UDP.
func headersOf(addr netip.Addr) int {
	if addr.Is4() {
		return 28
	}
	return 48
}

// whole connects to a server with packets that must not be fragmented.
func whole(t *testing.T, from *testnet.Namespace, server *net.UDPConn) *net.UDPConn {
	t.Helper()
	to := server.LocalAddr().(*net.UDPAddr)
	var client *net.UDPConn
	var err error
	from.Do(func() { client, err = net.DialUDP("udp", nil, to) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) {
		if to.AddrPort().Addr().Unmap().Is4() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
				unix.IP_PMTUDISC_DO)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
				unix.IPV6_PMTUDISC_DO)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return client
}

// datagram sends an IP packet of the given size that must not be fragmented, and checks that it
// arrives, and that the kernel refuses a larger one.
func datagram(t *testing.T, from, to *testnet.Namespace, addr netip.Addr, size int) {
	t.Helper()
	server := listen(t, to, addr)
	client := whole(t, from, server)
	headers := headersOf(addr)
	if _, err := client.Write(make([]byte, size-headers)); err != nil {
		t.Errorf("%s to %s: %d bytes: %v", from.Name, addr, size, err)
		return
	}
	if err := server.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 1<<16)); err != nil || n != size-headers {
		t.Errorf("%s to %s: received %d bytes of %d: %v", from.Name, addr, n, size-headers, err)
	}
	if _, err := client.Write(make([]byte, size-headers+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("%s to %s: %d bytes: %v, want EMSGSIZE", from.Name, addr, size+1, err)
	}
}

// transfer sends a megabyte by TCP, and returns the source address that the receiver sees.
func transfer(t *testing.T, from, to *testnet.Namespace, addr netip.Addr) netip.Addr {
	t.Helper()
	var server net.Listener
	var err error
	to.Do(func() { server, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	data := make([]byte, 1<<20)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- from.Run(func() error {
			c, err := net.DialTimeout("tcp", server.Addr().String(), testnet.Patience)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(data)
			return err
		})
	}()
	defer func() {
		if err := <-sent; err != nil {
			t.Errorf("%s to %s: %v", from.Name, addr, err)
		}
	}()
	if err := server.(*net.TCPListener).SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	c, err := server.Accept()
	if err != nil {
		t.Errorf("%s to %s: %v", from.Name, addr, err)
		return netip.Addr{}
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s to %s: received %d bytes: %v", from.Name, addr, len(got), err)
	}
	return netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap()
}
