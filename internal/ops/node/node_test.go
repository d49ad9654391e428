package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/node"
	"github.com/tenon-cni/tenon/network/config"
)

// TestMain lets the tests install the test binary as the plugin bridge, and run it as an installer
// that may be killed.
func TestMain(m *testing.M) {
	var err error
	switch filepath.Base(os.Args[0]) {
	case "bridge":
		fmt.Println(`{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}`)
	case installer:
		err = runInstaller(os.Args[1], len(os.Args) > 2)
	case killer:
		err = runKiller(os.Args[1], os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// host is a node with a source of configurations. STATUS of the networks in broken fails.
type host struct {
	*node.Node
	t       *testing.T
	root    string
	broken  map[string]bool
	checked []string // networks, with the files in the configuration directory at that time
}

func newHost(t *testing.T) *host {
	t.Helper()
	return newHostIn(t, t.TempDir())
}

// newHostIn returns a node with its directories below root.
func newHostIn(t *testing.T, root string) *host {
	t.Helper()
	h := &host{t: t, root: root, broken: map[string]bool{}}
	h.Node = newNode(root, func(_ context.Context, n *config.Network) error {
		h.checked = append(h.checked, fmt.Sprint(n.Name, h.files(h.NetDir)))
		if h.broken[n.Name] {
			return errors.New("no uplink")
		}
		return nil
	})
	h.write(h.Source, "10-pods.conflist", network("pods", 1500))
	return h
}

func newNode(root string, status func(context.Context, *config.Network) error) *node.Node {
	return &node.Node{
		Plugins: install.Request{Dir: filepath.Join(root, "bin"), Names: []string{"bridge"}},
		Source:  filepath.Join(root, "source"), NetDir: filepath.Join(root, "net.d"),
		Status: status,
	}
}

// network returns a configuration.
func network(name string, mtu int) string {
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [
		{"type": "bridge", "bridge": %q, "mtu": %d}]}`, name, name+"0", mtu)
}

func (h *host) write(dir, name, content string) {
	h.t.Helper()
	err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) files(dir string) []string {
	h.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// install returns the changes of configurations.
func (h *host) install() (changes []string) {
	h.t.Helper()
	done, err := h.Install(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range done.Files {
		changes = append(changes, string(f.Change)+" "+filepath.Base(f.Path))
	}
	if err := h.Check(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	return changes
}

func (h *host) expect(got []string, want ...string) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.t.Errorf("got %q, want %q", got, want)
	}
}

// refuses checks that Install fails with a message and a code.
func (h *host) refuses(code cni.Code, message string) {
	h.t.Helper()
	_, err := h.Install(h.t.Context())
	if err == nil || !strings.Contains(err.Error(), message) || cni.CodeOf(err) != code {
		h.t.Errorf("error %v (%d), want %q (%d)", err, cni.CodeOf(err), message, code)
	}
}

// TestInstall follows a configuration: it appears after STATUS, is replaced, and disappears with
// the source.
func TestInstall(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := h.Check(t.Context()); cni.CodeOf(err) != cni.CodeNotAvailable {
		t.Errorf("before the installation: %v", err)
	}
	h.expect(h.install(), "installed 10-pods.conflist")
	h.expect(h.checked[:1], "pods[]")
	h.expect(h.files(h.Plugins.Dir), "bridge")
	h.expect(h.install())

	h.write(h.Source, "10-pods.conflist", network("pods", 1400))
	h.write(h.Source, "20-other.conflist", network("other", 1500))
	if err := h.Check(t.Context()); err == nil {
		t.Error("an outdated installation passes the check")
	}
	h.expect(h.install(), "replaced 10-pods.conflist", "installed 20-other.conflist")
	if err := os.Remove(filepath.Join(h.Source, "10-pods.conflist")); err != nil {
		t.Fatal(err)
	}
	h.expect(h.install(), "removed 10-pods.conflist")
	h.expect(h.files(h.NetDir), ".tenon-node", "20-other.conflist")
	if err := node.Absent(h.NetDir); err == nil {
		t.Error("nothing is installed, want 20-other.conflist")
	}
}

// TestInstallRestores: plugins and configurations that another program removes or replaces are
// restored.
func TestInstallRestores(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.install()
	if err := os.Remove(filepath.Join(h.NetDir, "10-pods.conflist")); err != nil {
		t.Fatal(err)
	}
	h.expect(h.install(), "installed 10-pods.conflist")
	plugin := filepath.Join(h.Plugins.Dir, "bridge")
	if err := os.Remove(plugin); err != nil {
		t.Fatal(err)
	}
	h.write(h.Plugins.Dir, "bridge", "of a package")
	if err := h.Check(t.Context()); err == nil || !strings.Contains(err.Error(), plugin) {
		t.Errorf("%v, want an error with %s", err, plugin)
	}
	h.expect(h.install())
}

// TestInstallNotReady: a configuration appears, and replaces another, only if STATUS succeeds.
func TestInstallNotReady(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broken["pods"] = true
	h.refuses(cni.CodeInternal, "network pods: no uplink")
	h.expect(h.files(h.NetDir))
	h.broken["pods"] = false
	h.install()
	h.broken["pods"] = true
	h.write(h.Source, "10-pods.conflist", network("pods", 1400))
	h.refuses(cni.CodeInternal, "network pods: no uplink")
	content, err := os.ReadFile(filepath.Join(h.NetDir, "10-pods.conflist"))
	if err != nil || string(content) != network("pods", 1500) {
		t.Errorf("%s, %v", content, err)
	}
}

// TestInstallRefuses changes nothing if a configuration has mistakes, if there is none, or if a
// file of another program is in the way.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write(h.Source, "20-other.conflist",
		`{"cniVersion": "1.1.0", "name": "other", "plugins": [{"type": "bridge", "mtu": "big"}]}`)
	h.refuses(cni.CodeInvalidConfig, "20-other.conflist:1:")
	h.expect(h.files(h.Plugins.Dir))
	h.write(h.Source, "20-other.conflist", network("other", 1500))
	h.write(h.NetDir, "20-other.conflist", network("other", 1400))
	h.refuses(cni.CodeInvalidConfig, "20-other.conflist exists")
	h.expect(h.files(h.Plugins.Dir))

	// The same content needs no change, and remains the file of the other program.
	h.write(h.NetDir, "20-other.conflist", network("other", 1500))
	h.expect(h.install(), "installed 10-pods.conflist")
	if err := os.Remove(filepath.Join(h.Source, "20-other.conflist")); err != nil {
		t.Fatal(err)
	}
	h.expect(h.install())
	h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist", "20-other.conflist")

	if err := os.Remove(filepath.Join(h.Source, "10-pods.conflist")); err != nil {
		t.Fatal(err)
	}
	h.refuses(cni.CodeInvalidConfig, "no network configuration")
	h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist", "20-other.conflist")
}

// TestInstallPolicy installs the policy before the configurations that it governs.
func TestInstallPolicy(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write(h.Source, config.PolicyName, `{"requiredPlugins": {"*": ["bridge"]}}`)
	h.expect(h.install(), "installed tenon.policy", "installed 10-pods.conflist")
}

// TestInstallFromConfigMap reads the files of a volume of Kubernetes, which are links through a
// link to a directory.
func TestInstallFromConfigMap(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	data := filepath.Join(h.Source, "..2026_11_23")
	h.write(data, "10-pods.conflist", network("pods", 1400))
	err := errors.Join(os.Symlink("..2026_11_23", filepath.Join(h.Source, "..data")),
		os.Remove(filepath.Join(h.Source, "10-pods.conflist")),
		os.Symlink("..data/10-pods.conflist", filepath.Join(h.Source, "10-pods.conflist")))
	if err != nil {
		t.Fatal(err)
	}
	h.expect(h.install(), "installed 10-pods.conflist")
	info, err := os.Lstat(filepath.Join(h.NetDir, "10-pods.conflist"))
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bin")
	unlock, err := node.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Lock(dir); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	if unlock, err = node.Lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
