// Package dhcpserver starts DHCP servers of Debian, which scripts/test-deps installs, in the
// network namespaces of a test. The servers end with the test.
package dhcpserver

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// Server is a server on the bridge br0 of a test's host, see [NewNet]. It sends clients a router,
// an MTU of 1400, and classless routes.
type Server struct {
	Kind Kind

	t   testing.TB
	n   *testnet.Net
	dir string
	cmd *exec.Cmd
}

// Kind describes an implementation.
type Kind struct {
	Name     string
	Released string // log text for a released address; empty: none

	tool   string
	config func(s *Server, pool string, l lease) (command []string)
	ready  string // log text
}

// lease contains the times of a lease in seconds: clients renew it from renew on, rebind it from
// rebind on, and lose it at ends.
type lease struct{ renew, rebind, ends int }

// Kinds are all DHCPv4 servers.
var Kinds = []Kind{
	{"dnsmasq", "DHCPRELEASE", "dnsmasq", dnsmasq, "DHCP, sockets bound"},
	{"isc", "DHCPRELEASE", "dhcpd", isc, "Server starting service"},
	{"kea", "DHCP4_RELEASE ", "kea-dhcp4", kea, "DHCP4_STARTED"},
	{"udhcpd", "", "udhcpd", udhcpd, "started"},
	{"networkd", "RELEASE (0x", networkdPath, networkd, "br0: DHCPv4 server: STARTED"},
}

// dnsmasq grants leases of at least two minutes; it makes clients renew them as if they were
// shorter.
func dnsmasq(s *Server, pool string, l lease) []string {
	return []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--log-dhcp",
		"--log-facility=-", "--user=root", "--group=",
		"--interface=br0", "--bind-interfaces", "--dhcp-leasefile=" + s.dir + "/leases",
		"--pid-file=" + s.dir + "/pid",
		"--dhcp-authoritative", "--no-ping", "--dhcp-sequential-ip",
		fmt.Sprintf("--dhcp-range=%s,255.255.255.0,%d", pool, max(l.ends, 120)),
		fmt.Sprintf("--dhcp-option=option:T1,%d", l.renew),
		fmt.Sprintf("--dhcp-option=option:T2,%d", l.rebind),
		"--dhcp-option=option:router,10.92.0.1", "--dhcp-option=option:mtu,1400",
		"--dhcp-option=option:classless-static-route,172.30.0.0/16,10.92.0.254,172.31.0.0/16,0.0.0.0,0.0.0.0/0,10.92.0.1",
	}
}

func isc(s *Server, pool string, l lease) []string {
	s.keep("leases")
	s.write("conf", fmt.Sprintf(`option rfc3442 code 121 = array of unsigned integer 8;
default-lease-time %d; max-lease-time %[1]d; min-lease-time %[1]d;
option dhcp-renewal-time %[3]d; option dhcp-rebinding-time %[4]d; authoritative; one-lease-per-client on; ping-check off; dhcp-cache-threshold 0;
subnet 10.92.0.0 netmask 255.255.255.0 { range %[2]s; option routers 10.92.0.1; option interface-mtu 1400;
option rfc3442 16,172,30,10,92,0,254, 16,172,31,0,0,0,0, 0,10,92,0,1; }`, l.ends, strings.ReplaceAll(pool, ",", " "), l.renew, l.rebind))
	return []string{"dhcpd", "-4", "-d", "--no-pid", "-user", "root", "-group", "root", "-cf",
		s.dir + "/conf", "-lf", s.dir + "/leases", "br0"}
}

func kea(s *Server, pool string, l lease) []string {
	s.write("conf", fmt.Sprintf(`{"Dhcp4":{"interfaces-config":{"interfaces":["br0"],"dhcp-socket-type":"raw"},"authoritative":true,
"lease-database":{"type":"memfile","persist":true,"name":"%[1]s/leases","lfc-interval":0},"valid-lifetime":%[2]d,"renew-timer":%[4]d,"rebind-timer":%[5]d,
"option-def":[{"name":"csr","code":121,"type":"binary","space":"dhcp4"}],
"subnet4":[{"id":1,"subnet":"10.92.0.0/24","pools":[{"pool":"%[3]s"}],
"option-data":[{"name":"routers","data":"10.92.0.1"},{"name":"interface-mtu","data":"1400"},{"name":"csr","data":"10AC1E0A5C00FE10AC1F00000000000A5C0001"}]}],
"loggers":[{"name":"kea-dhcp4","severity":"INFO","output_options":[{"output":"stdout"}]}]}}`, s.dir, l.ends, strings.ReplaceAll(pool, ",", "-"), l.renew, l.rebind))
	return []string{"kea-dhcp4", "-c", s.dir + "/conf"}
}

func udhcpd(s *Server, pool string, l lease) []string {
	first, last, _ := strings.Cut(pool, ",")
	s.write("conf", fmt.Sprintf(`start %s
end %s
interface br0
lease_file %s/leases
pidfile %[3]s/pid
min_lease 1
auto_time 1
option subnet 255.255.255.0
option router 10.92.0.1
option mtu 1400
option lease %[4]d
option 0x3a %08[5]x
option 0x3b %08[6]x
option staticroutes 172.30.0.0/16 10.92.0.254, 172.31.0.0/16 0.0.0.0, 0.0.0.0/0 10.92.0.1
`, first, last, s.dir, l.ends, l.renew, l.rebind))
	s.keep("leases")
	return []string{"udhcpd", "-f", s.dir + "/conf"}
}

// Kinds6 are the DHCPv6 servers, with addresses of fd00:92::/64 and a name server there.
var Kinds6 = []Kind{
	{"isc6", "Release", "dhcpd", isc6, "Server starting service"},
	{"kea6", "DHCP6_RELEASE_NA ", "kea-dhcp6", kea6, "DHCP6_STARTED"},
}

func isc6(s *Server, pool string, l lease) []string {
	s.keep("leases")
	s.write("conf", fmt.Sprintf(`default-lease-time %d; preferred-lifetime %d; option dhcp-renewal-time %d; option dhcp-rebinding-time %d; dhcp-cache-threshold 0; authoritative;
subnet6 fd00:92::/64 { range6 %s; option dhcp6.name-servers fd00:92::1; }`, l.ends, l.ends*3/4, l.renew, l.rebind, strings.ReplaceAll(pool, ",", " ")))
	return []string{"dhcpd", "-6", "-d", "--no-pid", "-user", "root", "-group", "root", "-cf",
		s.dir + "/conf", "-lf", s.dir + "/leases", "br0"}
}

func kea6(s *Server, pool string, l lease) []string {
	s.write("conf", fmt.Sprintf(`{"Dhcp6":{"interfaces-config":{"interfaces":["br0"]},"server-id":{"type":"LL","persist":false},
"lease-database":{"type":"memfile","persist":true,"name":"%[1]s/leases","lfc-interval":0},
"valid-lifetime":%[2]d,"preferred-lifetime":%[3]d,"renew-timer":%[4]d,"rebind-timer":%[5]d,
"subnet6":[{"id":1,"subnet":"fd00:92::/64","interface":"br0","pools":[{"pool":"%[6]s"}],"option-data":[{"name":"dns-servers","data":"fd00:92::1"}]}],
"loggers":[{"name":"kea-dhcp6","severity":"INFO","output_options":[{"output":"stdout"}]}]}}`,
		s.dir, l.ends, l.ends*3/4, l.renew, l.rebind, strings.ReplaceAll(pool, ",", "-")))
	return []string{"kea-dhcp6", "-c", s.dir + "/conf"}
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// keep creates a file unless it exists.
func (s *Server) keep(name string) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	f.Close()
}

// NewNet creates a host with the bridge, and containers with eth0 on it.
func NewNet(t testing.TB, containers ...string) *testnet.Net {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth, kernel.FeatureBridge), testnet.Tool("ip"))
	n := testnet.New(t, containers...)
	Bridge(n)
	for _, c := range containers {
		PlugIn(n, c)
	}
	return n
}

// Bridge creates the bridge.
func Bridge(n *testnet.Net) {
	n.Host.Batch("link add br0 address 02:00:00:00:00:01 type bridge")
	n.Host.Command("sysctl", "-qw", "net.ipv6.conf.br0.accept_dad=0")
	n.Host.Batch("link set br0 up", "addr add 10.92.0.1/24 dev br0",
		"addr add fd00:92::1/64 dev br0 nodad", "link add up0 type veth peer name up1",
		"link set up0 master br0", "link set up0 up", "link set up1 up")
}

// Port returns the name of a container's port of the bridge.
func Port(container string) string {
	h := fnv.New32a()
	h.Write([]byte(container))
	return fmt.Sprintf("port%08x", h.Sum32())
}

// PlugIn gives a container eth0 on the bridge, down.
func PlugIn(n *testnet.Net, container string) {
	port := Port(container)
	c := n.Container(container)
	c.Batch("link add eth0 type veth peer name " + port)
	c.Command("ip", "link", "set", port, "netns", n.Host.Path())
	n.Host.Batch("link set "+port+" master br0", "link set "+port+" up")
}

// Start starts a server. pool is the first and last address, separated by a comma. Leases end after
// the given number of seconds.
func Start(t testing.TB, n *testnet.Net, k Kind, pool string, seconds int) *Server {
	t.Helper()
	s := newServer(t, n, k)
	s.Start(pool, seconds)
	return s
}

// StartRenewing starts a server that makes clients renew leases after the given number of seconds.
// Leases last so long that none ends during a test, however busy the host is.
func StartRenewing(t testing.TB, n *testnet.Net, k Kind, pool string, seconds int) *Server {
	t.Helper()
	s := newServer(t, n, k)
	s.StartRenewing(pool, seconds)
	return s
}

func newServer(t testing.TB, n *testnet.Net, k Kind) *Server {
	t.Helper()
	testnet.Require(t, testnet.Tool(k.tool))
	s := &Server{t: t, n: n, dir: t.TempDir(), Kind: k}
	t.Cleanup(s.Stop)
	return s
}

// Start restarts a stopped server with its files on disk, optionally with other addresses.
func (s *Server) Start(pool string, seconds int) {
	s.t.Helper()
	s.start(pool, lease{max(seconds/2, 1), max(seconds*7/8, 1), seconds})
}

// StartRenewing is like Start, with the leases of the function [StartRenewing].
func (s *Server) StartRenewing(pool string, seconds int) {
	s.t.Helper()
	s.start(pool, lease{seconds, 3000, 3600})
}

// StartRebinding starts a server with leases that clients soon rebind and that end a while later,
// because some servers do not answer clients that rebind.
func (s *Server) StartRebinding(pool string, seconds int) {
	s.t.Helper()
	s.start(pool, lease{seconds, 2 * seconds, 15 * seconds})
}

func (s *Server) start(pool string, l lease) {
	s.t.Helper()
	out, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	command := s.Kind.config(s, pool, l)
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+s.dir, "KEA_LOCKFILE_DIR="+s.dir,
		"KEA_DHCP_DATA_DIR="+s.dir)
	s.n.Host.Do(func() { err = s.cmd.Start() })
	if err != nil {
		s.t.Fatal(err)
	}
	testnet.Eventually(s.t, func() error {
		if !strings.Contains(s.Log(), s.Kind.ready) {
			return fmt.Errorf("%s has not started: %s", s.Kind.Name, s.Log())
		}
		return nil
	})
}

// Stop ends the server, as SIGTERM does.
func (s *Server) Stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Forget deletes the leases of a stopped server.
func (s *Server) Forget() {
	// networkd stores no leases.
	if err := os.Remove(filepath.Join(s.dir, "leases")); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
}

// Pause stops the server's processing for a while.
func (s *Server) Pause(d time.Duration) {
	s.t.Helper()
	p := s.cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	time.AfterFunc(d, func() { _ = p.Signal(syscall.SIGCONT) })
}

// Log returns the server's log since its start.
func (s *Server) Log() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(b)
}
