package demo

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// The proof of the demonstration finds each kind of object that could be left.
func TestProveFindsLeftovers(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *testnet.Net, *play) string{
		"link": func(t *testing.T, n *testnet.Net, p *play) string {
			n.Host.Command("ip", "link", "add", "veth0", "type", "veth", "peer", "veth1")
			return "links on the host, except lo and the shared bridge: veth1, veth0"
		},
		"masquerading": func(t *testing.T, n *testnet.Net, p *play) string {
			err := change(t.Context(), testnet.NS(t, n.Host), func(s *kernel.Space) error {
				return s.Rules.Masquerade("tag", kernel.Masq{}, []netip.Prefix{netip.MustParsePrefix("10.88.0.2/24")})
			})
			if err != nil {
				t.Fatal(err)
			}
			return "masqueraded addresses on the host: 10.88.0.2"
		},
		"port": func(t *testing.T, n *testnet.Net, p *play) string {
			port := kernel.PortMapping{Protocol: unix.IPPROTO_TCP, First: 8080, Last: 8080, To: netip.MustParseAddrPort("10.88.0.2:80")}
			entries, err := kernel.Publish("tag", kernel.Publication{Mappings: []kernel.PortMapping{port}})
			if err != nil {
				t.Fatal(err)
			}
			err = change(t.Context(), testnet.NS(t, n.Host), func(s *kernel.Space) error { return s.Rules.Apply("publish", "tag", entries) })
			if err != nil {
				t.Fatal(err)
			}
			return "host ports and their hairpin rules: owner "
		},
		"reservation": func(t *testing.T, n *testnet.Net, p *play) string {
			dir := filepath.Join(p.dir, "networks", "demo")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "10.88.0.2"), []byte("web\r\neth0"), 0o600); err != nil {
				t.Fatal(err)
			}
			return "reserved addresses: 10.88.0.2 held by container web"
		},
		"record": func(t *testing.T, n *testnet.Net, p *play) string {
			c := p.client
			c.Caller = invoke.Fake{"bridge": nil, "portmap": nil}
			r := network.Request{Container: "web", IfName: "eth0", Parameters: network.Parameters{Netns: p.web.path}}
			if _, err := c.Add(t.Context(), p.network, r); err != nil {
				t.Fatal(err)
			}
			return "recorded attachments: demo/web/eth0"
		},
		"address": func(t *testing.T, n *testnet.Net, p *play) string {
			n.Container("web").Command("ip", "address", "add", "10.88.0.2/32", "dev", "lo")
			return "addresses and routes in web: 10.88.0.2/32"
		},
		"nothing": func(*testing.T, *testnet.Net, *play) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := testnet.New(t, "web")
			n.Host.Command("ip", "link", "add", bridge, "type", "bridge")
			dir := t.TempDir()
			l, err := config.LoadBytes(fmt.Appendf(nil, list, filepath.Join(dir, "networks")))
			if err != nil {
				t.Fatal(err)
			}
			web := n.Container("web")
			p := &play{
				story: story{out: io.Discard}, dir: dir, host: testnet.NS(t, n.Host), network: l,
				client: network.Client{
					StateDir: filepath.Join(dir, "state"),
					CacheDir: network.NoCacheDir,
				},
				web: &container{name: "web", ns: testnet.NS(t, web), path: web.Path()},
			}
			want := leave(t, n, p)
			err = p.prove(t.Context())
			if got := cni.AsError(err); want == "" && err != nil ||
				want != "" && (err == nil || !strings.HasPrefix(got.Msg, want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
