package dhcp_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	ours "github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/dhcp"
)

// daemonAt runs the test binary as a daemon at a socket, because the suite counts the open files of
// its own process.
const daemonAt = "TENON_TEST_DHCP_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(daemonAt); socket != "" {
		err := daemon.Run(context.Background(), daemon.Options{
			Socket: socket, Timeout: time.Second, ResendTimeout: testnet.Patience,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plugintest.Main(m, all.Plugins...)
}

// start starts a daemon for a test.
func start(t testing.TB) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "dhcp.sock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), daemonAt+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testnet.Eventually(t, func() error {
		_, err := ours.Call(context.Background(), socket, ours.Request{Verb: ours.Status})
		return err
	})
	return socket
}

func suite(socket string) plugintest.Suite {
	return plugintest.Suite{
		Plugin:     dhcp.Plugin,
		Repeatable: true,
		Examples: []plugin.Example{{Name: "routes",
			Config: `{"cniVersion": "1.1.0", "name": "lan", "type": "bridge", "ipam": {"type": "dhcp", "request": [{"option": "121"}], "priority": 9, "routes": [{"dst": "203.0.113.0/24", "gw": "10.92.0.7"}]}}`}},
		Rewrite: func(conf map[string]any, _ string) {
			conf["ipam"].(map[string]any)["daemonSocketPath"] = socket
		},
		Setup: func(t testing.TB, n *plugintest.Net) {
			dhcpserver.Bridge(n)
			dhcpserver.Start(t, n, dhcpserver.Kinds[0], "10.92.0.100,10.92.0.250", 600)
		},
		Before: func(_ testing.TB, n *plugintest.Net, c *plugintest.Namespace) *cni.Result {
			dhcpserver.PlugIn(n, c.Name)
			c.Batch("link set eth0 up")
			return nil
		},
	}
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite(start(t))) }

// TestRefused checks that the plugin refuses invalid options before it calls the daemon.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ name, ipam, want string }{
		{"no ipam section", ``, "no ipam section"},
		{"unknown option", `, "ipam": {"type": "dhcp", "request": [{"option": "hostname"}]}`,
			`"hostname" is not a DHCP option`},
		{"unknown DHCPv6", `, "ipam": {"type": "dhcp", "dhcp6": "managed"}`,
			`dhcp6: "managed" is not one of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := dhcp.Plugin.Validate([]byte(`{"cniVersion": "1.1.0", "name": "lan", "type": "bridge"` + tt.ipam + `}`))
			if err == nil || cni.CodeOf(err) != cni.CodeInvalidConfig ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNamespaceIsFIFO: ADD refuses a FIFO as CNI_NETNS at once; it does not wait for a writer.
func TestNamespaceIsFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	env := cni.Env{Command: cni.Add, ContainerID: "c", IfName: "eth0", Netns: path}
	failed := make(chan error)
	go func() {
		_, err := dhcp.Plugin.Serve(t.Context(), env, []byte(
			`{"cniVersion":"1.1.0","name":"lan","type":"bridge","ipam":{"type":"dhcp"}}`), nil)
		failed <- err
	}()
	select {
	case err := <-failed:
		if cni.CodeOf(err) != cni.CodeUnknownContainer {
			t.Error(err)
		}
	case <-time.After(testnet.Patience):
		t.Error("ADD waits for a writer")
	}
}
