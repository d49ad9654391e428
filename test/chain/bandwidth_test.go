package chain

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/bridge"
	"github.com/tenon-cni/tenon/plugins/ptp"
)

// The tests do not use the system bus of the host.
func TestMain(m *testing.M) {
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere"); err != nil {
		panic(err)
	}
	plugintest.Main(m, all.Plugins...)
}

// The amount of data and the rate decide the least duration; the burst passes at once.
const (
	rate  = 8_000_000 // bit/s
	size  = 500_000   // bytes
	least = 400 * time.Millisecond
)

// transfer sends size bytes by TCP and returns the duration.
func transfer(t *testing.T, from, to *testnet.Namespace, address netip.Addr) time.Duration {
	t.Helper()
	var l net.Listener
	var c net.Conn
	var err error
	to.Do(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from.Do(func() { c, err = net.Dial("tcp", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go c.Write(make([]byte, size)) // ends when c is closed
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	start := time.Now()
	if err := in.SetReadDeadline(start.Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, in, size); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// behind calls bandwidth after another plugin of the network, with that plugin's result, or later
// with the result of the chain.
func behind(t *testing.T, r *plugintest.Runtime, verb cni.Command, prev json.RawMessage) json.RawMessage {
	t.Helper()
	q := r.Request(verb, "c")
	q.Conf["type"], q.Conf["prevResult"] = "bandwidth", prev
	q.Conf["ingressRate"], q.Conf["egressRate"] = rate, rate
	stdin, err := json.Marshal(q.Conf)
	if err != nil {
		t.Fatal(err)
	}
	var reply invoke.Reply
	r.Host.Do(func() {
		call := invoke.Call{Path: filepath.Join(q.Path, "bandwidth"), Env: q.Env, Stdin: stdin}
		reply, err = plugin.Caller(all.Plugins, false).Call(t.Context(), call)
	})
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return reply.Stdout
}

// TestBandwidth: after ptp with an MTU of 512, and after bridge, the container is reachable and
// limited, and CHECK of all plugins succeeds. DEL of the chain leaves nothing behind.
func TestBandwidth(t *testing.T) {
	const ipam = `,"ipam":{"type":"host-local","subnet":"10.90.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}}`
	for name, row := range map[string]struct {
		plugin.Definition
		members string
	}{
		"ptp":    {ptp.Plugin, `,"mtu":512`},
		"bridge": {bridge.Plugin, `,"isGateway":true`},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.Require(t, testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping))
			r := plugintest.NewRuntime(t, row.Definition, fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":%q%s`, name, row.members+ipam))
			r.Add("c")
			r.Del("c") // leaves the shared objects
			before := r.State()
			made := r.Add("c")
			first, err := made.Encode(cni.V110)
			if err != nil {
				t.Fatal(err)
			}
			free := r.State()
			prev := behind(t, r, cni.Add, first)
			behind(t, r, cni.Check, prev)
			r.Check("c")
			ip := made.IPs[0]
			testnet.Reaches(t, r.Container("c"), ip.Gateway, true)
			inside, gateway := ip.Address.Addr(), ip.Gateway
			received, sent := transfer(t, r.Host, r.Container("c"), inside), transfer(t, r.Container("c"), r.Host, gateway)
			if received < least || sent < least {
				t.Errorf("received in %s, sent in %s, want at least %s", received, sent, least)
			}
			behind(t, r, cni.Del, prev)
			r.Unchanged(free)
			if free := transfer(t, r.Host, r.Container("c"), inside); free > least/2 {
				t.Errorf("without limits received in %s, want at most %s", free, least/2)
			}
			r.Del("c")
			r.Unchanged(before)
		})
	}
}
