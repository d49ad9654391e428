package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// The configurations that containerd and Podman ship, and one without a bridge.
const (
	ofContainerd = "testdata/10-containerd-net.conflist"
	ofPodman     = "testdata/87-podman-bridge.conflist"
	routed       = "testdata/ptp-portmap.conflist"
)

const upstream = "/usr/lib/cni"

// runtime attaches containers to one network, each with port 80 as port 8080 of the host.
type runtime struct {
	*testnet.Net
	*network.Client
	t       *testing.T
	network *config.Network
	dir     string
}

// newRuntime returns a runtime with the network of a file, unchanged except for the data directory.
// The directory plugins holds the plugins; empty means Tenon's.
func newRuntime(t *testing.T, file, plugins string, exec bool) *runtime {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT))
	r := &runtime{Net: testnet.New(t), t: t, dir: t.TempDir()}
	text, err := os.ReadFile(file)
	must(t, err)
	text = bytes.Replace(text, []byte(`"type": "host-local",`), fmt.Appendf(nil, `"type": "host-local", "dataDir": %q,`, r.dir), 1)
	r.network, err = config.LoadBytes(text)
	must(t, err)
	if plugins == "" {
		plugins = t.TempDir()
		self, err := os.Executable()
		must(t, err)
		for _, d := range all.Plugins {
			must(t, os.Symlink(self, filepath.Join(plugins, d.Name)))
		}
	}
	r.Client = &network.Client{
		Caller: plugin.Caller(all.Plugins, exec), PluginDirs: []string{plugins}, Isolated: true, StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *runtime) add(container string, ports bool) []netip.Addr {
	r.t.Helper()
	q := network.Request{Container: container, IfName: "eth0", Parameters: network.Parameters{Netns: r.Container(container).Path()}}
	if ports {
		q.Capabilities = map[string]json.RawMessage{"portMappings": json.RawMessage(`[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`)}
	}
	var addrs []netip.Addr
	must(r.t, r.Host.Run(func() error {
		result, err := r.Add(r.t.Context(), r.network, q)
		if err != nil {
			return err
		}
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
		return nil
	}))
	return addrs
}

func (r *runtime) key(container string) cni.Attachment {
	return cni.Attachment{Network: r.network.Name, Container: container, IfName: "eth0"}
}

func (r *runtime) check(container string) {
	r.t.Helper()
	must(r.t, r.Host.Run(func() error { return r.Check(r.t.Context(), r.key(container), r.network) }))
}

func (r *runtime) del(container string) {
	r.t.Helper()
	must(r.t, r.Host.Run(func() error { return r.Del(r.t.Context(), r.key(container), network.Fallback{}) }))
}

// greet starts a server in a container that greets each client of one of its addresses.
func (r *runtime) greet(container string, addr netip.Addr) {
	r.t.Helper()
	var l net.Listener
	var err error
	r.Container(container).Do(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 80).String()) })
	must(r.t, err)
	r.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
}

// greeted checks whether a client gets the greeting.
func (r *runtime) greeted(from *testnet.Namespace, address string, want bool) {
	r.t.Helper()
	timeout := testnet.Patience
	if !want {
		timeout = 300 * time.Millisecond
	}
	var text []byte
	err := from.Run(func() error {
		c, err := net.DialTimeout("tcp", address, timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		text, err = io.ReadAll(c)
		return err
	})
	if got := string(text) == "hello"; got != want {
		r.t.Errorf("%s to %s: %q (%v), want a greeting: %t", from.Name, address, text, err, want)
	}
}

// TestFieldConfigurations: the configurations that containerd and Podman ship work unchanged, in
// one process and in several, and so does portmap after ptp: the container is reachable, CHECK
// succeeds, and DEL leaves nothing behind.
func TestFieldConfigurations(t *testing.T) {
	t.Parallel()
	for _, file := range []string{ofContainerd, ofPodman, routed} {
		for mode, exec := range map[string]bool{"in process": false, "processes": true} {
			t.Run(filepath.Base(file)+", "+mode, func(t *testing.T) {
				t.Parallel()
				r := newRuntime(t, file, "", exec)
				outside, sibling := r.Uplink(), r.Container("sibling")
				r.add("c", true)
				r.del("c") // leaves the shared objects
				before := testnet.Snapshot(t, r.Spaces())
				addrs := r.add("c", true)
				r.add("sibling", false)
				for _, a := range addrs {
					r.greet("c", a)
				}
				from := []*testnet.Namespace{outside, r.Host, sibling}
				if file != ofContainerd { // its bridge has no hairpinMode
					from = append(from, r.Container("c"))
				}
				for _, ns := range from {
					r.greeted(ns, "192.0.2.1:8080", true)
					if len(addrs) > 1 {
						r.greeted(ns, "[2001:db8::1]:8080", true)
					}
				}
				r.greeted(r.Host, "127.0.0.1:8080", true)
				testnet.Reaches(t, r.Container("c"), netip.MustParseAddr("192.0.2.2"), true)
				r.check("c")
				r.check("sibling")
				r.del("sibling")
				r.del("c")
				if diff := testnet.Diff(before, testnet.Snapshot(t, r.Spaces())); diff != "" {
					t.Errorf("left behind:\n%s", diff)
				}
				leases, err := filepath.Glob(filepath.Join(r.dir, "*", "[0-9]*"))
				if err != nil || leases != nil {
					t.Errorf("left behind: %v, %v", leases, err)
				}
			})
		}
	}
}

// TestForwardDrop: if iptables drops forwarded packets by default, firewall admits connections from
// containers, and connections to their ports only if the user's own chain does. Upstream does the
// same.
func TestForwardDrop(t *testing.T) {
	t.Parallel()
	for name, plugins := range map[string]string{"Tenon": "", "reference": upstream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Tool("iptables"))
			if plugins != "" {
				testnet.Require(t, testnet.Tool(filepath.Join(plugins, "firewall")))
			}
			r := newRuntime(t, ofPodman, plugins, true)
			outside := r.Uplink()
			r.Host.Command("iptables", "-P", "FORWARD", "DROP")
			r.greet("c", r.add("c", true)[0])
			testnet.Reaches(t, r.Container("c"), netip.MustParseAddr("192.0.2.2"), true)
			r.greeted(outside, "192.0.2.1:8080", false)
			r.greeted(r.Host, "127.0.0.1:8080", true)
			r.Host.Command("iptables", "-A", "CNI-ADMIN", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
			r.greeted(outside, "192.0.2.1:8080", true)
			r.del("c")
		})
	}
}
