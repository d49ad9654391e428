package hostlocal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// reference is the directory of Debian's package containernetworking-plugins.
const reference = "/usr/lib/cni"

func requireReference(t *testing.T) {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Namespaces,
		testnet.Tool(filepath.Join(reference, "bridge")), testnet.Tool(filepath.Join(reference,
			"host-local")))
}

// referenceBridge runs the upstream bridge plugin with host-local from the directory plugins.
func (h *host) referenceBridge(
	verb cni.Command, n *testnet.Net, container, plugins, ipam string,
) (string, error) {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(reference, "bridge"))
	cmd.Env = []string{
		"CNI_COMMAND=" + string(verb), "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0",
		"CNI_NETNS=" + n.Container(container).Path(), "CNI_PATH=" + plugins,
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "mynet", "type": "bridge", "bridge": "br0",
		"ipam": {"type": "host-local", "dataDir": %q, %s}}`, h.dir, ipam))
	var out []byte
	err := n.Host.Run(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	return string(out), err
}

// Tenon's GC (PL-GC-01) and DEL release the addresses of containers that the upstream plugins
// attached.
func TestCollectAfterReference(t *testing.T) {
	requireReference(t)
	h := newHost(t)
	n := testnet.New(t, "a", "b", "c")
	for _, c := range []string{"a", "b", "c"} {
		if out, err := h.referenceBridge(cni.Add, n, c, reference, pool); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := h.outcome(cni.Check, c, pool, ""); got != "" {
			t.Errorf("CHECK of %s: %s", c, got)
		}
	}
	got := h.outcome(cni.GC, "", pool,
		`, "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}, {"containerID": "c", "ifname": "eth0"}]`)
	if got != "" || h.holders() != "a c" {
		t.Errorf("left %q: %s", h.holders(), got)
	}
	if got := h.outcome(cni.Del, "c", pool, ""); got != "" || h.holders() != "a" {
		t.Errorf("left %q: %s", h.holders(), got)
	}
	if out, err := h.referenceBridge(cni.Del, n, "a", reference, pool); err != nil ||
		h.holders() != "" {
		t.Errorf("left %q: %v: %s", h.holders(), err, out)
	}
}

// The upstream bridge plugin calls Tenon's host-local (IPAM-01, IPAM-02, IPAM-03), and releases
// addresses if its ADD fails.
func TestUnderReferenceBridge(t *testing.T) {
	requireReference(t)
	h := newHost(t)
	n := testnet.New(t, "a", "b")
	plugins := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(plugins, "host-local")); err != nil {
		t.Fatal(err)
	}
	if out, err := h.referenceBridge(cni.Add, n, "a", plugins, pool); err != nil ||
		!strings.Contains(out, `"10.1.2.2/24"`) {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "mynet", ".owners")); err != nil {
		t.Errorf("upstream bridge did not call Tenon's host-local: %v", err)
	}
	out, err := h.referenceBridge(cni.Add, n, "b", plugins,
		pool+`, "routes": [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]`)
	if err == nil || !strings.Contains(out, "network is unreachable") || h.holders() != "a" {
		t.Errorf("impossible route: left %q: %v: %s", h.holders(), err, out)
	}
	if !strings.Contains(h.files(), `last_reserved_ip.0 "10.1.2.3"`) {
		t.Errorf("b had no address: %s", h.files())
	}
	if out, err := h.referenceBridge(cni.Del, n, "a", plugins, pool); err != nil ||
		h.holders() != "" {
		t.Errorf("left %q: %v: %s", h.holders(), err, out)
	}
}
