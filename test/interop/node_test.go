package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

// upstream is the directory of Debian's upstream plugins, plugins the default plugin directory of
// runtimes.
const (
	upstream = "/usr/lib/cni"
	plugins  = "/opt/cni/bin"
)

// clientsDir names the variable with the directory of programs that take precedence over Debian's:
// see scripts/test-clients.
const clientsDir = "TENON_CLIENTS"

// node looks like a host of its own to a runtime: network, mount and process namespaces, and empty
// directories. All processes on it end with the test.
type node struct {
	*testnet.Net
	t      *testing.T
	dir    string // the same path inside and outside
	cgroup string // the parent of all control groups of the node
	pid    int    // a process in its namespaces; its children are in the process namespace
	search string // the PATH of its processes
}

// nodeScript turns a network namespace into a node. When its input ends, also because the tests
// were killed, the first process of the process namespace ends, and the kernel kills the others. If
// both versions of control groups are mounted, it leaves version 1.
const nodeScript = `
	for dir in /run /opt /var/lib /dev/shm; do mount -t tmpfs -o mode=755 interop $dir; done
	mkdir -p /run/lock /run/netns /opt/cni/bin /var/lib/cni
	umount /sys/fs/cgroup/unified 2>/dev/null
	exec 3<&0
	unshare --pid --fork --mount-proc sh -c 'echo ready; cat <&3 & wait $!' & # it also waits for orphans
	echo $!
	wait $!
	find /sys/fs/cgroup -depth -type d -path "*/$0*" -exec rmdir {} +
`

func newNode(t *testing.T) *node {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Tool("unshare"), testnet.Tool("nsenter"))
	n := &node{Net: testnet.New(t), t: t, dir: t.TempDir(), search: searchFrom(os.Getenv(clientsDir))}
	n.cgroup = "tenon-interop-" + filepath.Base(filepath.Dir(n.dir))
	cmd := exec.Command("nsenter", "--net="+n.Host.Path(), "unshare", "--mount", "sh", "-c", nodeScript, n.cgroup)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, errors.Join(err, cmd.Start()))
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Errorf("end of the node: %v", err)
		}
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} { // version 2, and 1
			if left, _ := filepath.Glob(pattern + n.cgroup); left != nil {
				t.Errorf("control groups left: %q", left)
			}
		}
	})
	var words [2]string // the process and "ready", in any order
	if _, err := fmt.Fscan(out, &words[0], &words[1]); err != nil {
		t.Fatalf("namespaces of the node: %v", err)
	}
	if n.pid, err = strconv.Atoi(strings.Trim(words[0]+words[1], "ready")); err != nil {
		t.Fatalf("namespaces of the node: %v", err)
	}
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// install installs the plugins in the default directory and returns the path of tenon.
func (n *node) install() (tenon string) {
	n.t.Helper()
	tenon = n.build("../../cmd/tenon", "tenon")
	n.run(tenon, "install", plugins)
	return tenon
}

// build builds the program in a directory, which may belong to another module.
func (n *node) build(dir, name string) (path string) {
	n.t.Helper()
	path = filepath.Join(n.dir, name)
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	return path
}

// command returns a command that runs in the node.
func (n *node) command(args ...string) *exec.Cmd {
	parent := fmt.Sprintf("/proc/%d", n.pid)
	cmd := exec.Command("nsenter", append([]string{"--net=" + parent + "/ns/net", "--mount=" + parent + "/ns/mnt", "--pid=" + parent + "/ns/pid_for_children", "--"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+n.search)
	return cmd
}

// searchFrom returns a PATH that begins with a directory, unless that is empty.
func searchFrom(dir string) string {
	path := "/usr/sbin:/usr/bin:/sbin:/bin"
	if dir != "" {
		path = dir + ":" + path
	}
	return path
}

// try runs a command in the node and returns its output, which the error contains too.
func (n *node) try(args ...string) (string, error) {
	return output(n.command(args...))
}

func output(cmd *exec.Cmd) (string, error) {
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, out.Bytes(), messages.Bytes())
	}
	return out.String(), nil
}

// run runs a command in the node and fails the test if the command fails.
func (n *node) run(args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	must(n.t, err)
	return out
}

// path returns a path of the node as the test sees it.
func (n *node) path(inside string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.pid, inside)
}

// write writes a file of the node atomically.
func (n *node) write(name, text string) {
	n.t.Helper()
	name = n.path(name)
	half := filepath.Join(filepath.Dir(name), ".half")
	must(n.t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(half, []byte(text), 0o600), os.Rename(half, name)))
}

// files returns the base names of the files in the node that match a pattern.
func (n *node) files(pattern string) (names []string) {
	n.t.Helper()
	paths, err := filepath.Glob(n.path(pattern))
	must(n.t, err)
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// snapshot returns the state of the node's network.
func (n *node) snapshot() string {
	n.t.Helper()
	return testnet.Snapshot(n.t, []*testnet.Namespace{n.Host})
}

// unchanged fails the test if the network of the node differs from an earlier snapshot. It waits,
// because the kernel deletes the links of a namespace in the background.
func (n *node) unchanged(before string) {
	n.t.Helper()
	compare := func() string { return withoutSkeleton(testnet.Diff(before, n.snapshot())) }
	diff := compare()
	for end := time.Now().Add(testnet.Patience); diff != "" && time.Now().Before(end); diff = compare() {
		time.Sleep(50 * time.Millisecond)
	}
	if diff != "" {
		n.t.Errorf("left behind:\n%s", diff)
	}
}

// withoutSkeleton removes the rules, sets and maps of table inet tenon from a difference. They belong
// to no attachment, and a later version replaces them; attachments have elements.
func withoutSkeleton(diff string) string {
	var rest strings.Builder
	for line := range strings.Lines(diff) {
		if !skeleton.MatchString(line) {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

var skeleton = regexp.MustCompile(`host nft (rule inet tenon |(set|map) inet tenon \S+ \{)`)

// nothingKept fails the test if a file of an attachment or a namespace exists.
func (n *node) nothingKept() {
	n.t.Helper()
	for _, pattern := range []string{"/var/lib/cni/networks/*/[1f]*", "/var/lib/cni/results/*", "/run/netns/*"} {
		if names := n.files(pattern); names != nil {
			n.t.Errorf("left: %s: %q", pattern, names)
		}
	}
}

// await repeats try until it succeeds.
func (n *node) await(what string, try func() error) {
	n.t.Helper()
	err := try()
	for end := time.Now().Add(testnet.Patience); err != nil && time.Now().Before(end); err = try() {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}
