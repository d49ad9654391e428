// Package ovslab runs Debian's Open vSwitch, which scripts/test-deps installs, in the network
// namespaces of a test. Each switch has its own database, sockets and daemons, so a test can have
// several hosts. The daemons end with the test.
package ovslab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	schema  = "/usr/share/openvswitch/vswitch.ovsschema" // of the database, as Debian installs it
	timeout = "--timeout=120"                            // limits each call of a tool
)

// Datapath is an implementation of the packet path, in the words of the column datapath_type.
type Datapath string

// The datapaths.
const (
	// Userspace needs no kernel module. It does not complete checksums that a sender leaves to the
	// hardware, see [PlainChecksums].
	Userspace Datapath = "netdev"
	// Kernel needs a kernel with Open vSwitch, see [testnet.OpenVSwitch].
	Kernel Datapath = "system"
)

// Switch is Open vSwitch on one host.
type Switch struct {
	Host *testnet.Namespace
	Dir  string // run directory, with the sockets
	// DB is ovsdb-server and Daemon ovs-vswitchd.
	DB, Daemon *Process
	// Datapath is the type of new bridges.
	Datapath Datapath

	t      testing.TB
	number int // in the underlay
}

// Need requires the tools of Open vSwitch.
func Need() error {
	for _, tool := range []string{"ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovsdb-tool"} {
		if err := testnet.Tool(tool)(); err != nil {
			return err
		}
	}
	return nil
}

// Start starts Open vSwitch with the userspace datapath and without bridges in the namespace of a
// host. If the host has no Open vSwitch, it skips or fails the test, see [testnet.Require].
func Start(t testing.TB, host *testnet.Namespace) *Switch {
	t.Helper()
	testnet.Require(t, Need)
	return start(t, host, Userspace)
}

// StartKernel is like [Start] with the datapath of the kernel.
func StartKernel(t testing.TB, host *testnet.Namespace) *Switch {
	t.Helper()
	testnet.Require(t, Need, testnet.OpenVSwitch)
	testnet.Eventually(t, countsProcessors)
	return start(t, host, Kernel)
}

// countsProcessors returns an error during the first ten seconds after the boot of the system, in
// which Open vSwitch 3.1 counts no processor: it starts no thread for packets that miss the flows
// of the kernel, and forwards nothing.
func countsProcessors() error {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		return err
	}
	if up.Sec <= 10 {
		return fmt.Errorf("the system has run for %d s", up.Sec)
	}
	return nil
}

func start(t testing.TB, host *testnet.Namespace, path Datapath) *Switch {
	t.Helper()
	s := &Switch{Host: host, Dir: tempDir(t), Datapath: path, t: t}
	database := filepath.Join(s.Dir, "conf.db")
	s.Run("ovsdb-tool", "create", database, schema)
	s.DB = s.process("ovsdb-server", database, "--remote=punix:"+s.path("db.sock"),
		"--unixctl="+s.path("ovsdb.ctl"))
	s.Daemon = s.process("ovs-vswitchd", s.Socket(), "--unixctl="+s.path("vswitchd.ctl"))
	s.DB.Start()
	s.Run("ovs-vsctl", timeout, "--no-wait", "init")
	s.Daemon.Start()
	return s
}

// tempDir returns a directory with a path that is short enough for sockets, which the paths of
// testing.TB.TempDir are not.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s *Switch) path(name string) string { return filepath.Join(s.Dir, name) }

// Socket returns the address of the database in the form of the configuration key socket_file.
func (s *Switch) Socket() string { return "unix:" + s.path("db.sock") }

// Bridge creates a bridge, and sets its interface up.
func (s *Switch) Bridge(name string) {
	s.t.Helper()
	s.VSCtl("add-br", name, "--", "set", "Bridge", name, "datapath_type="+string(s.Datapath))
	s.Host.Batch("link set " + name + " up")
}

// VSCtl runs ovs-vsctl, which waits until ovs-vswitchd has made the changes, and returns its
// output. If it fails, the test ends.
func (s *Switch) VSCtl(args ...string) string {
	s.t.Helper()
	return s.Run("ovs-vsctl", append([]string{timeout}, args...)...)
}

// Database runs ovs-vsctl without waiting for ovs-vswitchd, which may be down.
func (s *Switch) Database(args ...string) string {
	s.t.Helper()
	return s.Run("ovs-vsctl", append([]string{timeout, "--no-wait"}, args...)...)
}

// AppCtl sends a command to ovs-vswitchd, such as fdb/show br0.
func (s *Switch) AppCtl(args ...string) string {
	s.t.Helper()
	return s.Run("ovs-appctl", append([]string{timeout, "-t", s.path("vswitchd.ctl")}, args...)...)
}

// Run runs a tool of Open vSwitch and returns its output. If it fails, the test ends.
func (s *Switch) Run(tool string, args ...string) string {
	s.t.Helper()
	out, err := s.Try(tool, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Try runs a tool of Open vSwitch. The error contains its messages.
func (s *Switch) Try(tool string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.Command(tool, args...)
	cmd.Env, cmd.Stderr = s.env(), &stderr
	var out []byte
	err := s.Host.Run(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, &stderr)
	}
	return string(out), err
}

// env makes the run directory the only directory that the tools and daemons know.
func (s *Switch) env() []string {
	env := os.Environ()
	for _, kind := range []string{"RUN", "DB", "SYSCONF", "LOG"} {
		env = append(env, "OVS_"+kind+"DIR="+s.Dir)
	}
	return env
}

// columns lists, for each table, the columns that other programs than ovs-vswitchd write.
var columns = [][]string{
	{"Bridge", "name", "datapath_type", "external_ids"},
	{"Port", "name", "vlan_mode", "tag", "trunks", "protected", "external_ids"},
	{"Interface", "name", "type", "options", "mtu_request", "ofport_request", "external_ids"},
}

// Rows returns the bridges, ports and interfaces of the database as text, one row per line. Two
// texts are equal if no program but ovs-vswitchd has changed a row between them.
func (s *Switch) Rows() string {
	s.t.Helper()
	var all strings.Builder
	for _, c := range columns {
		all.WriteString(s.Run("ovsdb-client", append([]string{timeout, "dump", "--no-headings",
			"--format=csv", s.Socket(), "Open_vSwitch"}, c...)...))
	}
	return all.String()
}
