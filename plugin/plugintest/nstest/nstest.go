// Package nstest creates network namespaces for tests on a real kernel: a host and its containers,
// which end with the test. Tests inspect them with ip(8) and other tools, which are independent of
// Tenon's code.
package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/netns"
)

// patience limits the time that a test waits for the kernel.
const patience = 2 * time.Minute

// Net is a host and its containers: network namespaces of one test.
type Net struct {
	Host *Namespace

	t          testing.TB
	dir        string
	containers map[string]*Namespace
}

// Namespace is a network namespace that ends with its test.
type Namespace struct {
	Name string // "host", or the name given to [Net.Container]
	// Number of a container: at its creation, the lowest number, from 0, that no other container of
	// the test has.
	Number int

	t    testing.TB
	ns   *netns.NS
	keep *netns.NS // keeps the namespace at the path alive
}

// New creates a host with its loopback interface up, and containers. The test fails if it lacks the
// privilege to create namespaces (root or CAP_SYS_ADMIN), or if ip(8) is not installed.
func New(t testing.TB, containers ...string) *Net {
	t.Helper()
	n := &Net{t: t, dir: t.TempDir(), containers: make(map[string]*Namespace)}
	n.Host = n.namespace("host")
	n.Host.Command("ip", "link", "set", "lo", "up")
	for _, name := range containers {
		n.Container(name)
	}
	return n
}

// Container returns the container of that name. If it does not exist, Container creates it with a
// loopback interface that is down.
func (n *Net) Container(name string) *Namespace {
	n.t.Helper()
	c := n.containers[name]
	if c == nil {
		c = n.namespace(name)
		c.Number = n.free()
		n.containers[name] = c
	}
	return c
}

// free returns the lowest unused container number.
func (n *Net) free() int {
	taken := make(map[int]bool)
	for _, c := range n.containers {
		taken[c.Number] = true
	}
	number := 0
	for taken[number] {
		number++
	}
	return number
}

// Remove ends a container as a runtime does: it removes the path, and the kernel removes the
// namespace unless another process holds it.
func (n *Net) Remove(name string) {
	n.t.Helper()
	c := n.Container(name)
	if err := os.Remove(c.Path()); err != nil {
		n.t.Fatal(err)
	}
	c.ns.Close()
	c.keep.Close()
	delete(n.containers, name)
}

// Spaces returns the host and the containers, by name.
func (n *Net) Spaces() []*Namespace {
	all := []*Namespace{n.Host}
	for _, c := range n.containers {
		all = append(all, c)
	}
	slices.SortFunc(all[1:], func(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// namespace creates a namespace. Its path is a symbolic link to the descriptor that keeps it, so no
// mount is necessary.
func (n *Net) namespace(name string) *Namespace {
	n.t.Helper()
	keep, err := netns.New()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { keep.Close() })
	path := filepath.Join(n.dir, name)
	if err := os.Symlink(keep.Path(), path); err != nil {
		n.t.Fatal(err)
	}
	ns, err := netns.Open(path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { ns.Close() })
	return &Namespace{Name: name, t: n.t, ns: ns, keep: keep}
}

// Path returns a path of the namespace for CNI_NETNS. It is also valid in child processes.
func (n *Namespace) Path() string { return n.ns.Path() }

// String returns the path.
func (n *Namespace) String() string { return n.Path() }

// Run calls fn inside the namespace and returns its error. fn runs on a thread of its own, which
// ends with fn: processes that fn starts are in the namespace too, but goroutines are not.
func (n *Namespace) Run(fn func() error) error { return n.ns.Run(fn) }

// Do is [Namespace.Run] for a function that cannot fail. If the namespace cannot be entered, the
// test ends.
func (n *Namespace) Do(fn func()) {
	n.t.Helper()
	err := n.Run(func() error {
		fn()
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// Command runs a tool inside the namespace and returns its output, including error messages. If the
// tool fails, the test ends.
func (n *Namespace) Command(name string, args ...string) string {
	n.t.Helper()
	out, err := n.Output("", name, args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// Batch runs commands of ip(8), each without the word ip, in one process. If one fails, the test
// ends.
func (n *Namespace) Batch(commands ...string) {
	n.t.Helper()
	if _, err := n.Output(strings.Join(commands, "\n"), "ip", "-batch", "-"); err != nil {
		n.t.Fatal(err)
	}
}

// Wire creates interfaces with a carrier, such as parent interfaces. Each is one end of a veth
// pair; its peer is named far-NAME.
func (n *Namespace) Wire(names ...string) {
	for _, name := range names {
		n.Batch("link add "+name+" type veth peer name far-"+name, "link set "+name+" up",
			"link set far-"+name+" up")
	}
}

// Try runs a tool inside the namespace. The error contains the output of the tool.
func (n *Namespace) Try(command ...string) error {
	_, err := n.Output("", command[0], command[1:]...)
	return err
}

// Output runs a tool inside the namespace with the given standard input, and returns its output,
// including error messages.
func (n *Namespace) Output(stdin, name string, args ...string) (string, error) {
	var out []byte
	err := n.Run(func() (err error) {
		cmd := exec.Command(name, args...)
		if stdin != "" {
			cmd.Stdin = strings.NewReader(stdin)
		}
		if out, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("in %s: %s %s: %w\n%s", n.Name, name, strings.Join(args, " "), err,
				out)
		}
		return nil
	})
	return string(out), err
}

// Uplink connects the host with a container named outside, which stands for another node, and
// returns outside. The host has 192.0.2.1/24 and 2001:db8::1/64, outside has 192.0.2.2/24 and
// 2001:db8::2/64. There are no routes to the containers.
func (n *Net) Uplink() *Namespace {
	outside := n.Container("outside")
	n.Host.Command("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns",
		outside.Path())
	for _, end := range []struct {
		ns         *Namespace
		name, last string
	}{{n.Host, "uplink", "1"}, {outside, "eth0", "2"}} {
		end.ns.Command("ip", "address", "add", "192.0.2."+end.last+"/24", "dev", end.name)
		end.ns.Command("ip", "address", "add", "2001:db8::"+end.last+"/64", "dev", end.name,
			"nodad")
		// The kernel does not resolve neighbours from a tentative address.
		end.ns.Command("sysctl", "-qw", "net.ipv6.conf."+end.name+".accept_dad=0")
		end.ns.Command("ip", "link", "set", end.name, "up")
	}
	for _, up := range []func() string{
		func() string { return n.Host.Command("ip", "link", "show", "dev", "uplink") },
		func() string { return outside.Command("ip", "link", "show", "dev", "eth0") },
	} {
		shown := up()
		for end := time.Now().Add(patience); !strings.Contains(shown, "state UP"); shown = up() {
			if time.Now().After(end) {
				n.t.Fatalf("uplink: %s", shown)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return outside
}
