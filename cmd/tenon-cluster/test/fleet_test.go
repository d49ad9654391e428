package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// build builds the programs into a directory, with the plugins in "plugins".
func build(t *testing.T) (dir string) {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Tool("nft"), testnet.Tool("bridge"),
		testnet.Kernel(kernel.FeatureNFT, kernel.FeatureBridge, kernel.FeatureVXLAN,
			kernel.FeatureIPv6))
	dir = t.TempDir()
	for _, args := range [][]string{
		{"go", "build", "-C", "../../..", "-o", dir, "./cmd/tenon"},
		{"go", "build", "-C", "..", "-o", dir, "."},
		{filepath.Join(dir, "tenon"), "install", "--only", "bridge,cluster",
			filepath.Join(dir, "plugins")},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return dir
}

// fleet is a cluster of hosts that run the built programs.
type fleet struct {
	*testing.T
	etcd     *lab.Cluster
	reg      *registry.Registry
	mode     string
	programs string
	pods     *testnet.Net
	outside  *lab.Port
	hosts    []*host
}

// host is a host of a fleet.
type host struct {
	*lab.Port
	f       *fleet
	name    string
	dir     string
	addrs   []netip.Addr // IPv4 first
	pods    []*pod
	mtu     int
	stop    func(syscall.Signal) // the agent
	objects string               // before the agent
}

// pod is an attached container.
type pod struct {
	*testnet.Namespace
	addrs []netip.Addr // IPv4 first
}

// newFleet starts etcd, and creates a cluster with the pools "pods" and "pods6".
func newFleet(t *testing.T, programs, mode string, pods, pods6 []string) *fleet {
	t.Helper()
	f := &fleet{T: t, etcd: lab.Start(t, lab.Options{Members: 1}), mode: mode, programs: programs,
		pods: testnet.New(t)}
	f.reg = sim.Registry(f.etcd.Client(nil), 0)
	f.outside = f.etcd.Node()
	f.outside.NS.Batch("address add 2001:db8::ff/64 dev eth0 nodad")
	f.operate("init")
	f.operate(append([]string{"pool", "create", "pods"}, pods...)...)
	f.operate(append([]string{"pool", "create", "pods6"}, pods6...)...)
	return f
}

// operate runs a command of tenon-cluster in a namespace that is never cut.
func (f *fleet) operate(args ...string) string {
	f.Helper()
	cmd := exec.Command(filepath.Join(f.programs, "tenon-cluster"), args...)
	cmd.Env = append(os.Environ(), "TENON_CLUSTER_CLUSTER="+sim.Cluster,
		"TENON_CLUSTER_ENDPOINTS="+strings.Join(f.etcd.Endpoints(), ","))
	var out []byte
	var err error
	f.etcd.Inside(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		f.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// join adds a host with a running agent on the link of the members.
func (f *fleet) join() *host {
	f.Helper()
	port := f.etcd.Node()
	n := len(f.hosts) + 1
	addr6 := fmt.Sprintf("2001:db8::%x", n)
	port.NS.Batch("address add "+addr6+"/64 dev eth0 nodad",
		"route add default via 10.99.254.1", "route add default via 2001:db8::fe")
	return f.boot(n, port, addr6)
}

// joinFar adds a host behind a router.
func (f *fleet) joinFar() *host {
	f.Helper()
	port, router := f.etcd.Far()
	router.Batch("address add 2001:db8::fe/64 dev eth0 nodad",
		"address add 2001:db8:1::fe/64 dev far nodad")
	port.NS.Batch("address add 2001:db8:1::1/64 dev eth0 nodad",
		"route add default via 2001:db8:1::fe")
	f.outside.NS.Batch("route add default via 10.99.254.1", "route add default via 2001:db8::fe")
	return f.boot(len(f.hosts)+1, port, "2001:db8:1::1")
}

func (f *fleet) boot(n int, port *lab.Port, addr6 string) *host {
	f.Helper()
	h := &host{Port: port, f: f, name: fmt.Sprintf("n%d", n), dir: f.TempDir(),
		addrs: []netip.Addr{netip.MustParseAddr(port.Addr), netip.MustParseAddr(addr6)}}
	if err := os.WriteFile(filepath.Join(h.dir, "pods.conflist"), fmt.Appendf(nil, `{
		"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods0",
		"isGateway": true, "ipMasq": true, "multipleGateways": true, "ipam": {"type": "cluster",
		"pools": ["pods", "pods6"], "dir": %q, "socket": %q,
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}]}`, h.cluster(), h.socket()),
		0o600); err != nil {
		f.Fatal(err)
	}
	h.objects = testnet.Objects(f, []*testnet.Namespace{h.NS})
	f.hosts = append(f.hosts, h)
	f.Cleanup(func() {
		if f.Failed() {
			text, _ := os.ReadFile(filepath.Join(h.dir, "agent.log"))
			f.Logf("agent of %s:\n%s%s", h.name, text, h.state())
		}
	})
	h.start()
	return h
}

func (h *host) cluster() string { return filepath.Join(h.dir, "cluster") }
func (h *host) socket() string  { return filepath.Join(h.dir, "agent.sock") }

// command returns a command line of a program on the host. The directory /run of tenon is its own.
func (h *host) command(program string, args ...string) *exec.Cmd {
	words := append([]string{filepath.Join(h.f.programs, program)}, args...)
	if program == "tenon" {
		const own = `mount -t tmpfs none /run && exec "$@"`
		words = append([]string{"unshare", "--mount", "sh", "-c", own, "sh"}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "TENON_CLUSTER_CLUSTER="+sim.Cluster,
		"TENON_CLUSTER_NODE="+h.name, "TENON_CLUSTER_DIR="+h.cluster(),
		"TENON_CLUSTER_SOCKET="+h.socket(), "TENON_CLUSTER_ROUTES="+h.f.mode,
		"TENON_CLUSTER_ENDPOINTS="+strings.Join(h.f.etcd.Endpoints(), ","),
		fmt.Sprintf("TENON_CLUSTER_ADDRESSES=%s,%s", h.addrs[0], h.addrs[1]),
		"TENON_EXEC=always")
	return cmd
}

// run runs a command on the host.
func (h *host) run(program string, args ...string) ([]byte, error) {
	cmd := h.command(program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := h.NS.Run(cmd.Run); err != nil {
		return nil, fmt.Errorf("%s: %s %s: %w\n%s%s", h.name, program, strings.Join(args, " "), err,
			stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// tenon runs the program tenon with the directories of the host.
func (h *host) tenon(args ...string) ([]byte, error) {
	return h.run("tenon", append(args, "--net-dir", h.dir, "--cache-dir", "",
		"--plugin-dir", filepath.Join(h.f.programs, "plugins"),
		"--state-dir", filepath.Join(h.dir, "state"))...)
}

// start starts the agent, and waits until it has published the MTU. The agent ends with the test
// process.
func (h *host) start() {
	h.f.Helper()
	log, err := os.OpenFile(filepath.Join(h.dir, "agent.log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		h.f.Fatal(err)
	}
	defer log.Close()
	cmd := h.command("tenon-cluster", "agent")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.NS.Run(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait()
			}
			return nil
		})
	}()
	if err := <-started; err != nil {
		h.f.Fatal(err)
	}
	h.stop = func(sig syscall.Signal) {
		_ = cmd.Process.Signal(sig)
		<-ended
	}
	h.f.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
	})
	testnet.Eventually(h.f, func() error {
		n, err := h.files().Node()
		if err == nil && n.MTU == 0 {
			err = errors.New("no MTU")
		}
		h.mtu = n.MTU
		return err
	})
}

func (h *host) files() *local.Store {
	return local.New(local.Options{Dir: h.cluster(), Existing: true})
}

// add attaches a pod.
func (h *host) add() *pod {
	h.f.Helper()
	p := &pod{Namespace: h.f.pods.Container(fmt.Sprintf("%s-%d", h.name, len(h.pods)))}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	testnet.Eventually(h.f, func() error { // code 11 means that a runtime tries again
		out, err := h.tenon("add", "pods", p.Path(), "--id", p.Name, "--json")
		if err == nil {
			err = json.Unmarshal(out, &result)
		}
		return err
	})
	if len(result.IPs) != 2 {
		h.f.Fatalf("%s: result %+v", p.Name, result)
	}
	for _, ip := range result.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	h.pods = append(h.pods, p)
	return p
}

// del detaches all pods.
func (h *host) del() {
	h.f.Helper()
	for _, p := range h.pods {
		if _, err := h.tenon("del", "pods", p.Path(), "--id", p.Name); err != nil {
			h.f.Error(err)
		}
		h.f.pods.Remove(p.Name)
	}
	h.pods = nil
}

// full checks that pods reach each other in both families, with packets of up to their MTU and under
// their own addresses, and that an address outside sees the address of the host. It takes the first
// and the last pod of each host, which are in different blocks if the host has several.
func (f *fleet) full(hosts ...*host) {
	f.Helper()
	for _, from := range hosts {
		for _, p := range from.ends() {
			for _, to := range hosts {
				for _, q := range to.ends() {
					if p == q {
						continue
					}
					for i := range p.addrs {
						f.sees(p.Namespace, q.Namespace, q.addrs[i], p.addrs[i], from.mtu)
					}
				}
			}
			f.sees(p.Namespace, f.outside.NS, netip.MustParseAddr(f.outside.Addr), from.addrs[0], 0)
			f.sees(p.Namespace, f.outside.NS, netip.MustParseAddr("2001:db8::ff"), from.addrs[1], 0)
		}
	}
}

// ends returns the first and the last pod.
func (h *host) ends() []*pod {
	if len(h.pods) < 2 {
		return h.pods
	}
	return []*pod{h.pods[0], h.pods[len(h.pods)-1]}
}

// sees checks that small packets, and packets of the size of an MTU, reach an address from a source
// address, and that the kernel refuses larger ones. An MTU of 0 is not checked.
func (f *fleet) sees(from, to *testnet.Namespace, addr, source netip.Addr, mtu int) {
	f.Helper()
	var server, client *net.UDPConn
	err := errors.Join(
		to.Run(func() (err error) {
			server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
			return err
		}),
		from.Run(func() (err error) {
			client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			return err
		}))
	if err != nil {
		f.Errorf("%s to %s: %v", from.Name, addr, err)
		return
	}
	defer server.Close()
	defer client.Close()
	if err := whole(client); err != nil {
		f.Fatal(err)
	}
	sizes := []int{1}
	headers := 28
	if addr.Is6() {
		headers = 48
	}
	if mtu > 0 {
		sizes = append(sizes, mtu-headers)
	}
	for _, size := range sizes {
		var seen netip.Addr
		err := testnet.Try(func() (err error) {
			seen, err = exchange(client, server, size)
			return err
		})
		if err != nil || seen != source {
			f.Errorf("%s to %s: %s sees %s, expected %s; %d bytes: %v", from.Name, to.Name, addr, seen,
				source, size, err)
			return
		}
	}
	if mtu == 0 {
		return
	}
	if _, err := client.Write(make([]byte, mtu-headers+1)); !errors.Is(err, syscall.EMSGSIZE) {
		f.Errorf("%s to %s: %d bytes: %v, expected EMSGSIZE", from.Name, to.Name, mtu+1, err)
	}
}

// whole forbids the fragmentation of packets.
func whole(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, failed)
}

// exchange sends a packet, and returns the source address of the packet of this size that arrives.
func exchange(client, server *net.UDPConn, size int) (netip.Addr, error) {
	if _, err := client.Write(make([]byte, size)); err != nil {
		return netip.Addr{}, err
	}
	if err := server.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return netip.Addr{}, err
	}
	for {
		n, from, err := server.ReadFromUDPAddrPort(make([]byte, 1<<16))
		if err != nil || n == size {
			return from.Addr().Unmap(), err
		}
	}
}

// state returns what the agent has programmed, one object per line.
func (h *host) state() string {
	var lines []string
	for _, c := range []string{"ip -4 route show protocol 117 table all",
		"ip -6 route show protocol 117 table all", "ip -d -o link show type vxlan",
		"bridge fdb show dev tenon-vx", "ip -4 neigh show dev tenon-vx nud permanent",
		"ip -6 neigh show dev tenon-vx nud permanent", "ip -4 neigh show proxy",
		"ip -6 neigh show proxy", "nft list table inet tenon"} {
		words := strings.Fields(c)
		out, err := h.NS.Output("", words[0], words[1:]...)
		if err != nil { // there is no such device, or no such table
			continue
		}
		for line := range strings.Lines(out) {
			if link, rest, ok := strings.Cut(line, ": "); ok && words[1] == "-d" {
				_, line = link, rest // without the index
			}
			lines = append(lines, strings.TrimSpace(words[0]+" "+words[1]+": "+line))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// without waits until no host has a route into blocks.
func without(t testing.TB, hosts []*host, blocks []netip.Prefix) {
	t.Helper()
	testnet.Eventually(t, func() error {
		for _, h := range hosts {
			for _, b := range blocks {
				if state := h.state(); strings.Contains(state, ": "+b.String()+" ") {
					return fmt.Errorf("%s has a route to %s:\n%s", h.name, b, state)
				}
			}
		}
		return nil
	})
}

// blocks returns the blocks of a node in the store.
func (h *host) blocks() []netip.Prefix {
	h.f.Helper()
	n, err := h.f.reg.Nodes.Read(h.f.Context(), h.name)
	if err != nil {
		h.f.Fatal(err)
	}
	all := map[netip.Prefix]bool{}
	for _, b := range n.Blocks {
		all[b.Block] = true
	}
	return slices.Collect(maps.Keys(all))
}
