// Package lab starts a cluster of etcd for tests: each member is a process in a network namespace
// of its own, connected by a bridge, so that a test can kill, pause and partition members as well
// as nodes. It needs root. The members write to disk with fsync and end with the test.
package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// Server is a program that runs a member: its environment and the command to which the lab adds
// "--config-file FILE".
type Server struct {
	Env     []string
	Command []string
}

// Debian is the server of the package etcd-server, 3.4.23 in Debian 12.
var Debian = Server{Command: []string{"etcd"}}

// Options are options of a cluster. The zero value is three members of [Debian] without TLS.
type Options struct {
	Server  Server
	Members int
	// Quota limits the database of a member, in bytes; zero is etcd's default.
	Quota int64
	// TLS requires certificates from clients and members.
	TLS bool
}

// Cluster is a running cluster.
type Cluster struct {
	Members []*Member
	PKI     *PKI // nil without TLS

	t     testing.TB
	net   *testnet.Net
	o     Options
	start *starter
	nodes int

	mu sync.Mutex // guards the address of the host
}

// Member is a member of a cluster.
type Member struct {
	Name     string
	Endpoint string

	c    *Cluster
	port *Port
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// Port connects a namespace to the bridge.
type Port struct {
	NS   *testnet.Namespace
	Addr string // on the bridge

	host *testnet.Namespace
	name string
}

// Cut takes the link down: nothing passes in either direction, and no connection ends.
func (p *Port) Cut() { p.host.Command("ip", "link", "set", p.name, "down") }

// Join takes the link up again.
func (p *Port) Join() { p.host.Command("ip", "link", "set", p.name, "up") }

// Start starts a cluster and waits until every member answers. In short mode it skips the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	testnet.Long(t)
	testnet.Require(t, testnet.Root, testnet.Tool("nsenter"))
	if o.Members == 0 {
		o.Members = 3
	}
	if o.Server.Command == nil {
		o.Server = Debian
	}
	testnet.Require(t, testnet.Tool(o.Server.Command[0]))
	c := &Cluster{t: t, net: testnet.New(t), o: o, start: newStarter()}
	t.Cleanup(c.start.end)
	c.net.Host.Batch("link add bridge type bridge", "link set bridge up")
	if o.TLS {
		c.PKI = newPKI(t)
	}
	for i := range o.Members {
		name := fmt.Sprintf("m%d", i+1)
		m := &Member{Name: name, c: c, port: c.port(name, 1+i),
			dir: filepath.Join(t.TempDir(), name)}
		m.Endpoint = c.scheme() + "://" + m.port.Addr + ":2379"
		c.Members = append(c.Members, m)
		t.Cleanup(m.Kill)
	}
	for _, m := range c.Members {
		m.Start()
	}
	c.healthy()
	return c
}

func (c *Cluster) scheme() string {
	if c.o.TLS {
		return "https"
	}
	return "http"
}

func (c *Cluster) port(name string, number int) *Port {
	ns := c.net.Container(name)
	p := &Port{NS: ns, host: c.net.Host, name: name,
		Addr: fmt.Sprintf("10.99.%d.%d", number/256, number%256)}
	c.net.Host.Command("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns",
		ns.Path())
	c.net.Host.Batch("link set "+name+" master bridge", "link set "+name+" up")
	ns.Batch("link set lo up", "address add "+p.Addr+"/16 dev eth0", "link set eth0 up")
	return p
}

// Node creates the namespace of a node.
func (c *Cluster) Node() *Port {
	c.nodes++
	return c.port(fmt.Sprintf("n%d", c.nodes), 256+c.nodes)
}

// Far creates the namespace of a node behind a router, with address 10.98.0.2. The router has the
// addresses 10.98.0.1 there and 10.99.254.1 on the bridge, over which the members reach the node.
func (c *Cluster) Far() (node *Port, router *testnet.Namespace) {
	router = c.port("router", 254*256+1).NS
	ns := c.net.Container("far")
	router.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv6.conf.all.keep_addr_on_down=1") // for Cut
	router.Batch("link add far type veth peer name eth0 netns "+ns.Path(),
		"address add 10.98.0.1/24 dev far", "link set far up")
	ns.Batch("link set lo up", "address add 10.98.0.2/24 dev eth0", "link set eth0 up",
		"route add default via 10.98.0.1")
	for _, m := range c.Members {
		m.port.NS.Batch("route add 10.98.0.0/24 via 10.99.254.1")
	}
	return &Port{NS: ns, Addr: "10.98.0.2", host: router, name: "far"}, router
}

// Endpoints returns the client URLs of all members.
func (c *Cluster) Endpoints() (all []string) {
	for _, m := range c.Members {
		all = append(all, m.Endpoint)
	}
	return all
}

// Config returns the configuration of a client that runs in the namespace of a port. A nil port
// stands for a namespace that is never cut.
func (c *Cluster) Config(p *Port) clientv3.Config {
	ns := c.net.Host
	if p == nil {
		p = &Port{NS: ns}
		c.hostAddress()
	}
	conf := clientv3.Config{
		Endpoints:            c.Endpoints(),
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(
			func(ctx context.Context, addr string) (conn net.Conn, err error) {
				err = p.NS.Run(func() error {
					conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
					return err
				})
				return conn, err
			})},
	}
	if c.PKI != nil {
		conf.TLS = c.PKI.Client("tenon")
	}
	return conf
}

func (c *Cluster) hostAddress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := c.net.Host.Command("ip", "address", "show", "dev", "bridge")
	if !strings.Contains(shown, "10.99.") {
		c.net.Host.Command("ip", "address", "add", "10.99.255.254/16", "dev", "bridge")
	}
}

// Inside calls a function on a thread in a namespace that is never cut, for processes that it
// starts.
func (c *Cluster) Inside(fn func()) {
	c.t.Helper()
	c.hostAddress()
	c.net.Host.Do(fn)
}

// Client returns a client in the namespace of a port that is closed at the end of the test.
func (c *Cluster) Client(p *Port) *clientv3.Client { return c.Dial(c.Config(p)) }

// Dial returns a client with a configuration that [Cluster.Config] has returned. With a password, the
// client logs in, which a busy machine may not do within DialTimeout.
func (c *Cluster) Dial(conf clientv3.Config) (client *clientv3.Client) {
	c.t.Helper()
	testnet.Eventually(c.t, func() (err error) {
		client, err = clientv3.New(conf)
		return err
	})
	c.t.Cleanup(func() { client.Close() })
	return client
}

// healthy waits until every member answers a linearizable read.
func (c *Cluster) healthy() {
	c.t.Helper()
	var wait sync.WaitGroup
	errs := make([]error, len(c.Members))
	for i, m := range c.Members {
		conf := c.Config(nil)
		conf.Endpoints = []string{m.Endpoint}
		wait.Go(func() { errs[i] = m.healthy(conf) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

func (m *Member) healthy(conf clientv3.Config) error {
	client, err := clientv3.New(conf)
	if err != nil {
		return err
	}
	defer client.Close()
	err = testnet.Try(func() error {
		select {
		case <-m.done:
			return nil // reported below
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := client.Get(ctx, "health")
		if isPermission(err) {
			return nil
		}
		return err
	})
	select {
	case <-m.done:
		err = fmt.Errorf("has ended: %s", m.cmd.ProcessState)
	default:
	}
	if err != nil {
		return fmt.Errorf("member %s: %w\n%s", m.Name, err, m.log())
	}
	return nil
}

// isPermission reports whether a member has answered, and refused a client without a user.
func isPermission(err error) bool {
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// log returns the end of the member's log.
func (m *Member) log() string {
	text, _ := os.ReadFile(m.dir + ".log")
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// leader returns the leader, or nil while there is none.
func (c *Cluster) leader() *Member {
	conf := c.Config(nil)
	client, err := clientv3.New(conf)
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	for _, m := range c.Members {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		status, err := client.Status(ctx, m.Endpoint)
		cancel()
		if err == nil && status.Header.MemberId == status.Leader {
			return m
		}
	}
	return nil
}

// WaitLeader returns the leader that the cluster has, or elects, other than the given members.
func (c *Cluster) WaitLeader(not ...*Member) (leader *Member) {
	c.t.Helper()
	testnet.Eventually(c.t, func() error {
		if leader = c.leader(); leader == nil || slices.Contains(not, leader) {
			return errors.New("no new leader")
		}
		return nil
	})
	return leader
}

// Start starts the process. Its data is what an earlier process left.
func (m *Member) Start() {
	m.c.t.Helper()
	file := m.dir + ".json"
	text, err := json.MarshalIndent(m.config(), "", "  ")
	if err != nil {
		m.c.t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		m.c.t.Fatal(err)
	}
	log, err := os.OpenFile(m.dir+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		m.c.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"--net=" + m.port.NS.Path()}, m.c.o.Server.Command...)
	m.cmd = exec.Command("nsenter", append(args, "--config-file", file)...)
	m.cmd.Env = append(os.Environ(), m.c.o.Server.Env...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.c.start.start(m.cmd); err != nil {
		m.c.t.Fatal(err)
	}
	m.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		_ = cmd.Wait()
	}(m.cmd, m.done)
}

func (m *Member) config() map[string]any {
	var initial []string
	for _, other := range m.c.Members {
		initial = append(initial, other.Name+"="+other.peerURL())
	}
	conf := map[string]any{
		"name": m.Name, "data-dir": m.dir,
		"listen-client-urls": m.Endpoint, "advertise-client-urls": m.Endpoint,
		"listen-peer-urls": m.peerURL(), "initial-advertise-peer-urls": m.peerURL(),
		"initial-cluster": strings.Join(initial, ","), "initial-cluster-state": "new",
		"logger": "zap", "log-level": "warn",
	}
	if m.c.o.Quota > 0 {
		conf["quota-backend-bytes"] = m.c.o.Quota
	}
	if pki := m.c.PKI; pki != nil {
		cert, key := pki.server(m.Name, m.port.Addr)
		files := map[string]any{"cert-file": cert, "key-file": key, "client-cert-auth": true,
			"trusted-ca-file": pki.ca}
		conf["client-transport-security"] = files
		conf["peer-transport-security"] = files
	}
	return conf
}

func (m *Member) peerURL() string { return m.c.scheme() + "://" + m.port.Addr + ":2380" }

// running reports whether the process runs, or is paused.
func (m *Member) running() bool {
	if m.done == nil {
		return false
	}
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// Kill ends the process at once, if it runs, also if it is paused.
func (m *Member) Kill() {
	if m.running() {
		_ = m.cmd.Process.Kill()
		<-m.done
	}
}

// Pause stops the process as a hypervisor pauses a virtual machine.
func (m *Member) Pause() { _ = m.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (m *Member) Resume() { _ = m.cmd.Process.Signal(syscall.SIGCONT) }

// Cut takes the link of the member down.
func (m *Member) Cut() { m.port.Cut() }

// Join takes the link of the member up again.
func (m *Member) Join() { m.port.Join() }

// Heal resumes, connects and starts all members, and waits until they answer.
func (c *Cluster) Heal() {
	c.t.Helper()
	for _, m := range c.Members {
		m.Join()
		if m.running() {
			m.Resume()
		} else {
			m.Start()
		}
	}
	c.healthy()
}
