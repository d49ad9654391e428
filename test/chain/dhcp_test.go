package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	ours "github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bridge"
	"github.com/tenon-cni/tenon/plugins/dhcp"
	"github.com/tenon-cni/tenon/plugins/ipvlan"
	"github.com/tenon-cni/tenon/plugins/macvlan"
	"github.com/tenon-cni/tenon/plugins/vlan"
)

// dhcpBridge returns a runtime with bridge and dhcp, and a function that starts the daemon.
func dhcpBridge(t *testing.T) (r *plugintest.Runtime, s *dhcpserver.Server, daemonAt func() (stop func())) {
	t.Helper()
	return dhcpOn(t, bridge.Plugin, `"type": "bridge", "bridge": "br0"`, "10.92.0.100,10.92.0.101")
}

// dhcpOn returns a runtime with an interface plugin and dhcp, and a function that starts the
// daemon.
func dhcpOn(t *testing.T, p plugin.Definition, conf, pool string) (r *plugintest.Runtime, s *dhcpserver.Server, daemonAt func() (stop func())) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	r = plugintest.NewRuntime(t, p, fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", %s,
		"ipam": {"type": "dhcp", "daemonSocketPath": %q, "request": [{"option": "121"}], "priority": 7, "routes": [{"dst": "203.0.113.0/24", "gw": "10.92.0.9"}]}}`, conf, socket))
	dhcpserver.Bridge(r.Net)
	s = dhcpserver.Start(t, r.Net, dhcpserver.Kinds[0], pool, 120)
	return r, s, func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		o := daemon.Options{Socket: socket, Timeout: 2 * time.Second, ResendMax: 8 * time.Second, ResendTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)}
		go func() { done <- daemon.Run(ctx, o) }()
		testnet.Eventually(t, func() error {
			_, err := ours.Call(ctx, socket, ours.Request{Verb: ours.Status})
			return err
		})
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDHCPBehindBridge: the interface has the address and all routes, the release reaches the
// server although DEL deletes the link, and an exhausted pool gives upstream's error text.
func TestDHCPBehindBridge(t *testing.T) {
	t.Parallel()
	r, s, start := dhcpBridge(t)
	defer start()()
	result := r.Add("a")
	address := result.IPs[0].Address.String()
	if shown := r.Container("a").Command("ip", "addr", "show", "dev", "eth0"); !strings.Contains(shown, address) {
		t.Errorf("%s is not in %s", address, shown)
	}
	routes := r.Container("a").Command("ip", "route")
	for _, want := range []string{"default via 10.92.0.1 dev eth0 metric 7", "172.30.0.0/16 via 10.92.0.254 dev eth0 metric 7", "172.31.0.0/16 dev eth0 scope link metric 7", "203.0.113.0/24 via 10.92.0.9 dev eth0"} {
		if !strings.Contains(strings.Join(strings.Fields(routes), " "), want) {
			t.Errorf("no route %q in\n%s", want, routes)
		}
	}
	r.Check("a")
	r.Add("b")
	err := r.Refused(r.Request(cni.Add, "c"), cni.CodeInternal)
	if text := err.Error(); !strings.Contains(text, ": error calling DHCP.Allocate: no more tries: no OFFER in ") || !strings.Contains(text, "on eth0 (carrier up)") {
		t.Error(text)
	}
	r.Del("a")
	r.Del("b")
	released(t, s, 2)
	r.Add("c")
	r.Del("c")
}

// released waits until the server has received n releases.
func released(t *testing.T, s *dhcpserver.Server, n int) {
	t.Helper()
	testnet.Eventually(t, func() error {
		if got := strings.Count(s.Log(), s.Kind.Released); got != n {
			return fmt.Errorf("%d releases, expected %d: %s", got, n, s.Log())
		}
		return nil
	})
}

// TestDHCPRelease: the release reaches the server also if the link is a child of another link,
// although DEL and GC delete it right afterwards.
func TestDHCPRelease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		plugin plugin.Definition
		kind   kernel.Feature
		conf   string
		setup  []string // commands in the host, where up0 is a port of br0 and up1 its peer
	}{
		{bridge.Plugin, kernel.FeatureBridge, `"type": "bridge", "bridge": "br0"`, nil},
		{macvlan.Plugin, kernel.FeatureMacvlan, `"type": "macvlan", "master": "up1"`, nil},
		{ipvlan.Plugin, kernel.FeatureIPvlan, `"type": "ipvlan", "master": "up1"`, nil},
		{vlan.Plugin, kernel.FeatureVLAN, `"type": "vlan", "master": "up1", "vlanId": 5, "dad": "off"`, []string{
			"link set up0 nomaster", "link add link up0 name tagged type vlan id 5", "link set tagged master br0", "link set tagged up",
		}},
	} {
		t.Run(tt.plugin.Name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(tt.kind))
			r, s, start := dhcpOn(t, tt.plugin, tt.conf, "10.92.0.100,10.92.0.101")
			if len(tt.setup) > 0 {
				r.Host.Batch(tt.setup...)
			}
			defer start()()
			r.Add("a")
			r.Check("a")
			r.Del("a")
			released(t, s, 1)
			r.Add("b")
			r.Must(r.Collect("b"))
			released(t, s, 1)
			r.Must(r.Collect())
			released(t, s, 2)
		})
	}
}

// TestDHCPReleaseByFile: the release reaches the server also if the program that runs the interface
// plugin has no definition of dhcp and executes it as a file.
func TestDHCPReleaseByFile(t *testing.T) {
	t.Parallel()
	r, s, start := dhcpBridge(t)
	defer start()()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, filepath.Join(dir, "dhcp")))
	caller := plugin.Linked{Plugins: []plugin.Definition{bridge.Plugin}}
	before := testnet.Snapshot(t, []*testnet.Namespace{r.Container("a")})
	for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Del} {
		q := r.Request(verb, "a")
		q.Path = dir
		stdin, err := json.Marshal(q.Conf)
		must(t, err)
		must(t, r.Host.Run(func() error {
			call := invoke.Call{Path: invoke.LinkedPath("bridge"), Env: q.Env, Stdin: stdin}
			_, err := caller.Call(t.Context(), call)
			return err
		}))
	}
	released(t, s, 1)
	after := testnet.Snapshot(t, []*testnet.Namespace{r.Container("a")})
	if diff := testnet.Diff(before, after); diff != "" {
		t.Errorf("DEL left:\n%s", diff)
	}
}

// TestDHCPReleaseLost: a release that does not reach the server is no error (PL-DEL-09); the daemon
// forgets the lease.
func TestDHCPReleaseLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*plugintest.Runtime, *dhcpserver.Server){
		"no server":      func(_ *plugintest.Runtime, s *dhcpserver.Server) { s.Stop() },
		"no way to it":   func(r *plugintest.Runtime, _ *dhcpserver.Server) { r.Host.Batch("link set br0 down") },
		"no interface":   func(r *plugintest.Runtime, _ *dhcpserver.Server) { r.Container("a").Batch("link del eth0") },
		"interface down": func(r *plugintest.Runtime, _ *dhcpserver.Server) { r.Container("a").Batch("link set eth0 down") },
		"no container":   func(r *plugintest.Runtime, _ *dhcpserver.Server) { r.Remove("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s, start := dhcpBridge(t)
			defer start()()
			socket := r.Conf["ipam"].(map[string]any)["daemonSocketPath"].(string)
			r.Add("a")
			del := r.Request(cni.Del, "a")
			lose(r, s)
			r.Must(del)
			if reply, err := ours.Call(t.Context(), socket, ours.Request{Verb: ours.List}); err != nil || len(reply.Leases) > 0 {
				t.Errorf("still there: %+v, %v", reply, err)
			}
		})
	}
}

// TestDHCPPool: each interface of a container is a client of its own. Without a free address, ADD
// fails within the limits of the daemon with upstream's error text. DEL succeeds for each of them,
// twice.
func TestDHCPPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pool string
		second     string // result of ADD for eth1; empty: it is refused
	}{
		{"one address", "10.92.0.100,10.92.0.100", ""},
		{"two addresses", "10.92.0.100,10.92.0.101", "10.92.0.101/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, s, start := dhcpOn(t, bridge.Plugin, `"type": "bridge", "bridge": "br0"`, tt.pool)
			defer start()()
			var dels []plugintest.Request
			for i, want := range []string{"10.92.0.100/24", tt.second} {
				q := r.Request(cni.Add, "a")
				q.IfName = fmt.Sprintf("eth%d", i)
				out, err := r.Do(t.Context(), q)
				if want == "" && (err == nil || !strings.Contains(err.Error(), "error calling DHCP.Allocate: no more tries")) || want != "" && err != nil {
					t.Errorf("%s: %v\n%s", q.IfName, err, s.Log())
				}
				if !strings.Contains(string(out), want) {
					t.Errorf("%s: got %s, expected %s", q.IfName, out, want)
				}
				q.Command = cni.Del
				dels = append(dels, q, q, q)
			}
			var all sync.WaitGroup
			for _, q := range dels {
				all.Go(func() {
					if _, err := r.Do(t.Context(), q); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			r.Must(dels[0])
		})
	}
}

const referenceDHCP = "/usr/lib/cni/dhcp"

// upstreamDaemon starts the daemon of the upstream plugin.
func upstreamDaemon(t *testing.T, r *plugintest.Runtime) (end func()) {
	t.Helper()
	socket := r.Conf["ipam"].(map[string]any)["daemonSocketPath"].(string)
	cmd := exec.Command(referenceDHCP, "daemon", "-socketpath", socket, "-timeout", "1s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, func() error {
		_, err := os.Stat(socket)
		return err
	})
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// tenonDHCP builds tenon-dhcp into the directory of the test binary, where the plugin finds it to
// speak with the upstream plugin's daemon.
var tenonDHCP = sync.OnceValue(func() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(self), ours.Program), "../../cmd/tenon-dhcp").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build tenon-dhcp: %w\n%s", err, out)
	}
	return nil
})

func buildProgram(t *testing.T) {
	t.Helper()
	if err := tenonDHCP(); err != nil {
		t.Fatal(err)
	}
}

// TestDHCPUpstreamDaemon: the plugin works with the daemon of the upstream plugin.
func TestDHCPUpstreamDaemon(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(referenceDHCP))
	buildProgram(t)
	r, s, _ := dhcpBridge(t)
	defer upstreamDaemon(t, r)()
	result := r.Add("a")
	if len(result.Routes) != 4 || !strings.HasPrefix(result.IPs[0].Address.String(), "10.92.0.10") {
		t.Errorf("%+v\n%s", result, s.Log())
	}
	r.Must(r.Collect("a"))
	r.Check("a")
	r.Del("a")
}

// TestDHCPAfterUpstreamDaemon: a daemon that replaces upstream's knows no leases. CHECK reports the
// addresses of interfaces to it; the daemon renews and releases them.
func TestDHCPAfterUpstreamDaemon(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(referenceDHCP))
	buildProgram(t)
	r, s, start := dhcpBridge(t)
	end := upstreamDaemon(t, r)
	r.Add("a")
	r.Add("b")
	end()
	released(t, s, 0) // it releases nothing
	defer start()()
	routes := r.Container("a").Command("ip", "route")
	r.Check("a")
	r.Container("b").Batch("addr flush dev eth0")
	if err := r.Refused(r.Request(cni.Check, "b"), cni.CodeInternal); err == nil {
		t.Error("the interface has no address")
	}
	socket := r.Conf["ipam"].(map[string]any)["daemonSocketPath"].(string)
	testnet.Eventually(t, func() error {
		reply, err := ours.Call(t.Context(), socket, ours.Request{Verb: ours.List})
		if err == nil && (len(reply.Leases) != 1 || reply.Leases[0].State != "bound" || reply.Leases[0].Server != "10.92.0.1") {
			err = fmt.Errorf("%+v", reply.Leases)
		}
		return err
	})
	r.Check("a")
	if now := r.Container("a").Command("ip", "route"); now != routes {
		t.Errorf("routes\n%s\nbefore\n%s", now, routes)
	}
	r.Del("a")
	released(t, s, 1)
}

// TestDHCPUpstreamClient: the upstream plugin works with our daemon.
func TestDHCPUpstreamClient(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(referenceDHCP))
	r, s, start := dhcpBridge(t)
	defer start()()
	r.Conf["cniVersion"] = "1.0.0"
	r.Conf["ipam"].(map[string]any)["routes"] = []any{} // the upstream plugin ignores the key
	r.Foreign(filepath.Dir(referenceDHCP), r.Request(cni.Add, "a"))
	addrs := r.Container("a").Command("ip", "-4", "addr", "show", "dev", "eth0") + r.Container("a").Command("ip", "route")
	for _, want := range []string{"inet 10.92.0.10", "172.30.0.0/16 via 10.92.0.254", "172.31.0.0/16 dev eth0"} {
		if !strings.Contains(addrs, want) {
			t.Errorf("no %q in\n%s", want, addrs)
		}
	}
	r.Foreign(filepath.Dir(referenceDHCP), r.Request(cni.Del, "a"))
	if t.Failed() {
		t.Log(s.Log())
	}
}

// TestDHCPWithoutDaemon: DEL succeeds without a daemon, and the next daemon releases the address
//
func TestDHCPWithoutDaemon(t *testing.T) {
	t.Parallel()
	r, _, start := dhcpBridge(t)
	socket := r.Conf["ipam"].(map[string]any)["daemonSocketPath"].(string)
	if text := r.Refused(r.Request(cni.Add, "a"), cni.CodeIOFailure).Error(); !strings.Contains(text, ": error dialing DHCP daemon: ") {
		t.Error(text)
	}
	r.Del("a")
	stop := start()
	r.Add("a")
	r.Add("b")
	stop()
	r.Del("a")
	leases, err := ours.LeaseFiles(socket)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := leases.Names(); len(names) != 2 || err != nil {
		t.Errorf("leases of the daemon: %v, %v", names, err)
	}
	defer start()()
	if names, err := leases.Names(); len(names) != 1 || err != nil {
		t.Errorf("after a restart: %v, %v", names, err)
	}
	r.Check("b") // the new daemon has taken over the lease
	r.Del("b")
}

// TestDHCPReleaseQueued: the next daemon releases leases that DEL without a daemon could not
// release, if the interface still exists.
func TestDHCPReleaseQueued(t *testing.T) {
	t.Parallel()
	r, s, start := dhcpOn(t, dhcp.Plugin, `"type": "dhcp"`, "10.92.0.100,10.92.0.101")
	dhcpserver.PlugIn(r.Net, "a")
	stop := start()
	r.Add("a")
	stop()
	released(t, s, 0)
	r.Del("a")
	r.Del("a")
	defer start()()
	released(t, s, 1)
}
