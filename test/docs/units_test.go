package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// needed lists lines that systemd does not require but the units do: one makes a reload reach the
// service, the other names the socket.
var needed = map[string][]string{
	"tenon-repair.service": {
		"Type=oneshot", "RemainAfterExit=yes", "ExecReload=/usr/local/bin/tenon repair",
		"After=nftables.service firewalld.service", "ReloadPropagatedFrom=nftables.service firewalld.service",
	},
	"tenon-dhcp.service": {"Requires=tenon-dhcp.socket", "ExecStart=/usr/local/bin/tenon dhcp-daemon", "Restart=always"},
	"tenon-watch.service": {
		"Type=notify", "ExecStart=/usr/local/bin/tenon watch", "ExecReload=kill -HUP $MAINPID",
		"Restart=always", "After=nftables.service firewalld.service",
	},
	"tenon-cluster.service": {
		"Type=notify", "ExecStart=/usr/local/bin/tenon-cluster agent", "Restart=always",
	},
	"tenon-dhcp.socket": {"ListenStream=" + dhcp.DefaultSocket, "SocketMode=0600", "RemoveOnStop=yes"},
}

// TestUnits lets systemd verify the units in contrib.
func TestUnits(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("systemd-analyze"))
	units, err := filepath.Glob("../../contrib/systemd/*")
	if err != nil || len(units) != len(needed) {
		t.Fatalf("%d units, expected %d: %v", len(units), len(needed), err)
	}
	dir := t.TempDir() // a common one, because the units name each other
	var copied []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, line := range needed[filepath.Base(unit)] {
			if !slices.Contains(lines, line) {
				t.Errorf("%s: no line %s", unit, line)
			}
		}
		to := filepath.Join(dir, filepath.Base(unit))
		program := strings.NewReplacer( // a program that exists
			"=/usr/local/bin/tenon ", "=/bin/true ", "=/usr/local/bin/tenon-cluster ", "=/bin/true ",
		).Replace(string(text))
		if err := os.WriteFile(to, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		copied = append(copied, to)
	}
	if out, err := exec.Command("systemd-analyze", append([]string{"--man=no", "verify"}, copied...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, unit := range copied {
		if filepath.Ext(unit) != ".service" {
			continue
		}
		// The threshold is ten times the exposure level.
		if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=40", unit).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestManifest: the daemon of the DaemonSet sees the namespaces of the node, and its socket is at
// the path that the plugin uses.
func TestManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../contrib/kubernetes/dhcp/tenon-dhcp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	const prefix = "/host"
	for _, line := range []string{
		"kind: DaemonSet", "hostPID: true", "hostNetwork: true", "- operator: Exists", "privileged: true # sockets in the namespaces of others",
		`command: ["/usr/local/bin/tenon", "dhcp-daemon", "--hostprefix", "` + prefix + `"]`,
		`exec: {command: ["/usr/local/bin/tenon", "dhcp", "list", "--socketpath", "` + prefix + dhcp.DefaultSocket + `"]}`,
		"- {name: run, mountPath: " + prefix + "/run, mountPropagation: HostToContainer}",
		"- {name: run, mountPath: " + prefix + "/var/run, mountPropagation: HostToContainer}",
		"hostPath: {path: /run, type: Directory}",
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %s", line)
		}
	}
}

// TestClusterManifest: the agent of the DaemonSet has the node's name, and state and socket at the
// paths that the plugin uses.
func TestClusterManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../contrib/kubernetes/cluster/tenon-cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	socketDir := filepath.Dir(local.DefaultSocket)
	for _, line := range []string{
		"kind: DaemonSet", "hostNetwork: true", "- operator: Exists",
		"privileged: true # routes, nftables and sysctls of the node",
		`command: ["/usr/local/bin/tenon-cluster", "agent"]`,
		`exec: {command: ["/usr/local/bin/tenon-cluster", "status", "--local"]}`,
		"- name: TENON_CLUSTER_NODE",
		"- {name: config, mountPath: /etc/tenon}",
		"- {name: state, mountPath: " + local.DefaultDir + "}",
		"hostPath: {path: " + local.DefaultDir + ", type: DirectoryOrCreate}",
		"- {name: socket, mountPath: " + socketDir + "}",
		"hostPath: {path: " + socketDir + ", type: DirectoryOrCreate}",
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %s", line)
		}
	}
}
