// Package testnet gives tests a real kernel: throw-away network namespaces, traffic between them, a text of their
// complete state, the decision to skip, and a check for leaks. It is for tests only, and the only place outside of package
// iptables that starts tools; as they are not ours they serve as an independent witness.
package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Net is a host and its containers: network namespaces of one test.
type Net struct {
	Host *Namespace

	t          testing.TB
	dir        string
	containers map[string]*Namespace
}

// Namespace is a network namespace that ends with its test. Its path can be used as CNI_NETNS, by child processes too.
type Namespace struct {
	*netns.NS
	Name   string
	Number int // of a container: the lowest that no other of the test had when it was made, from 0

	t    testing.TB
	keep *netns.NS // what the path leads to
}

// New makes a host, with its loopback up, and the containers named. The test is skipped or fails where that is not
// possible, see [Require].
func New(t testing.TB, containers ...string) *Net {
	t.Helper()
	Require(t, Namespaces, Tool("ip"))
	n := &Net{t: t, dir: t.TempDir(), containers: make(map[string]*Namespace)}
	n.Host = n.namespace("host")
	n.Host.Command("ip", "link", "set", "lo", "up")
	for _, name := range containers {
		n.Container(name)
	}
	return n
}

// Container returns the container of that name and makes it if there is none, with nothing but a loopback that is down.
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

// free returns the lowest number that no container has.
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

// Remove ends a container as a runtime does: the path is gone, and then the namespace, unless something else holds it.
func (n *Net) Remove(name string) {
	n.t.Helper()
	c := n.Container(name)
	if err := os.Remove(c.Path()); err != nil {
		n.t.Fatal(err)
	}
	c.Close()
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

// namespace makes a namespace. Its path is a link to the descriptor that keeps it, which needs no mount.
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
	return &Namespace{NS: ns, Name: name, t: n.t, keep: keep}
}

// Do calls fn inside the namespace, on a thread of its own: it is the current namespace of fn and of the processes fn
// starts.
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

// Command runs a tool inside the namespace and returns what it prints. If it fails, so does the test.
func (n *Namespace) Command(name string, args ...string) string {
	n.t.Helper()
	out, err := n.command("", name, args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// Batch runs commands of ip in one process, given without the word ip. If one fails, so does the test.
func (n *Namespace) Batch(commands ...string) {
	n.t.Helper()
	if _, err := n.command(strings.Join(commands, "\n"), "ip", "-batch", "-"); err != nil {
		n.t.Fatal(err)
	}
}

// Wire makes interfaces with a carrier: ends of pairs whose other ends, far-NAME, nobody uses.
func (n *Namespace) Wire(names ...string) {
	for _, name := range names {
		n.Batch("link add "+name+" type veth peer name far-"+name, "link set "+name+" up", "link set far-"+name+" up")
	}
}

// Try runs a tool inside the namespace. The error has what it prints.
func (n *Namespace) Try(command ...string) error {
	_, err := n.command("", command[0], command[1:]...)
	return err
}

func (n *Namespace) command(stdin, name string, args ...string) (string, error) {
	var out []byte
	err := n.Run(func() (err error) {
		cmd := exec.Command(name, args...)
		if stdin != "" {
			cmd.Stdin = strings.NewReader(stdin)
		}
		if out, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("in %s: %s %s: %w\n%s", n.Name, name, strings.Join(args, " "), err, out)
		}
		return nil
	})
	return string(out), err
}
