package firewall_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/firewall"
)

// TestMain keeps the plugin away from the system bus of the host.
func TestMain(m *testing.M) {
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS",
		"unix:path=/nonexistent/tenon-test-bus"); err != nil {
		panic(err)
	}
	plugintest.Main(m, all.Plugins...)
}

// lab is a host with bridges, to which the test attaches containers, with the plugin behind them.
type lab struct {
	*plugintest.Runtime
	t     testing.TB
	conf  string                 // members of the plugin's configuration
	ports map[string]*cni.Result // by container
}

func newLab(t testing.TB, conf string, bridges ...string) *lab {
	t.Helper()
	l := &lab{plugintest.NewRuntime(t, firewall.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"firewall"}`), t, conf, map[string]*cni.Result{}}
	l.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv6.conf.default.accept_dad=0")
	l.bridgesToIP("0")
	for i, br := range bridges {
		l.Host.Batch("link add "+br+" type bridge", "link set "+br+" up",
			fmt.Sprintf("address add 10.9.%d.1/24 dev %s", i,
				br), fmt.Sprintf("address add fd00:9:%d::1/64 dev %s nodad", i, br))
	}
	return l
}

// bridgesToIP sets whether the host's IP filters see bridged packets, if the kernel has
// br_netfilter.
func (l *lab) bridgesToIP(value string) {
	l.Host.Command("sysctl", "-eqw", "net.bridge.bridge-nf-call-iptables="+value,
		"net.bridge.bridge-nf-call-ip6tables="+value)
}

// plug connects a container to bridge n.
func (l *lab) plug(name, bridge string, n, number int) {
	l.t.Helper()
	c, host := l.Net.Container(name), "veth-"+name
	c.Command("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
	l.Host.Batch(fmt.Sprintf("link add %s type veth peer name eth0 netns %s", host, c.Path()),
		"link set "+host+" up master "+bridge)
	v4, v6 := fmt.Sprintf("10.9.%d.%d/24", n, number), fmt.Sprintf("fd00:9:%d::%x/64", n, number)
	c.Batch("address add "+v4+" dev eth0", "address add "+v6+" dev eth0 nodad", "link set eth0 up",
		fmt.Sprintf("route add default via 10.9.%d.1",
			n), fmt.Sprintf("route add default via fd00:9:%d::1", n))
	l.ports[name] = &cni.Result{
		Interfaces: []cni.Interface{
			{Name: bridge}, {Name: host}, {Name: "eth0", Sandbox: c.Path()},
		},
		IPs: []cni.IP{{Address: netip.MustParsePrefix(v4), Interface: cni.Some(2)},
			{Address: netip.MustParsePrefix(v6), Interface: cni.Some(2)}},
	}
}

// link connects a container to the host alone, as ptp does.
func (l *lab) link(name string) {
	l.t.Helper()
	l.Net.Container(name).Command("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
	l.ports[name] = plugintest.Veth(l.t, l.Net, l.Net.Container(name))
}

// request returns a call for a container with the result of the plugins before.
func (l *lab) request(verb cni.Command, name, members string) plugintest.Request {
	l.t.Helper()
	q := plugintest.Request{
		Env: cni.Env{Command: verb, ContainerID: name, Netns: l.Net.Container(name).Path(),
			IfName: "eth0", Path: l.Dir},
		Conf: map[string]any{},
	}
	if err := json.Unmarshal([]byte(`{"cniVersion":"1.0.0","name":"net","type":"firewall"`+members+`}`),
		&q.Conf); err != nil {
		l.t.Fatal(err)
	}
	prev, err := l.ports[name].Encode(cni.V100)
	if err != nil {
		l.t.Fatal(err)
	}
	q.Conf["prevResult"] = json.RawMessage(prev)
	return q
}

func (l *lab) add(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.Must(l.request(cni.Add, name, l.conf))
	}
}

func (l *lab) check(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.Must(l.request(cni.Check, name, l.conf))
	}
}

// checkFails calls CHECK, which must fail with an error that contains what.
func (l *lab) checkFails(name, what string) {
	l.t.Helper()
	_, err := l.Do(l.t.Context(), l.request(cni.Check, name, l.conf))
	if err == nil || !strings.Contains(err.Error(), what) {
		l.t.Errorf("CHECK of %s: %v, want an error about %q", name, err, what)
	}
}

func (l *lab) del(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.Must(l.request(cni.Del, name, l.conf))
	}
}

// outside returns a node beyond the host that has a route back.
func (l *lab) outside() *testnet.Namespace {
	o := l.Uplink()
	o.Batch("route add 10.0.0.0/8 via 192.0.2.1", "route add fd00::/8 via 2001:db8::1")
	return o
}

// addrs are the addresses of a container, or of the node outside.
func (l *lab) addrs(name string) []netip.Addr {
	if p, ok := l.ports[name]; ok {
		return []netip.Addr{p.IPs[0].Address.Addr(), p.IPs[1].Address.Addr()}
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
}

// matrix pings from each container to each, over IPv4 and IPv6, and compares with the rows: source,
// ':', and the destinations that answer.
func (l *lab) matrix(rows ...string) {
	l.t.Helper()
	want := map[string]map[string]bool{}
	for _, row := range rows {
		from, to, _ := strings.Cut(row, ":")
		want[from] = map[string]bool{}
		for _, name := range strings.Fields(to) {
			want[from][name] = true
		}
	}
	var wg sync.WaitGroup
	for from, answers := range want {
		for to := range want {
			for _, a := range l.addrs(to) {
				if from != to {
					wg.Go(func() { testnet.Reaches(l.t, l.Net.Container(from), a, answers[to]) })
				}
			}
		}
	}
	wg.Wait()
}

// saved returns the filter tables of both families as iptables-save prints them.
func (l *lab) saved() string {
	l.t.Helper()
	var out strings.Builder
	for _, tool := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.Lines(l.Host.Command(tool, "-t", "filter")) {
			if !strings.HasPrefix(line, "#") {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// isolation lists the non-empty sets for isolation.
func (l *lab) isolation() (sets []string) {
	l.t.Helper()
	for _, set := range []string{
		"inet tenon isolated", "inet tenon together", "inet tenon members", "bridge tenon isolated",
	} {
		if out, err := l.tryList(set); err == nil && strings.Contains(out, "elements") {
			sets = append(sets, set)
		}
	}
	return sets
}

func (l *lab) tryList(set string) (string, error) {
	if err := l.Host.Try(append([]string{
		"nft", "list", "set",
	}, strings.Fields(set)...)...); err != nil {
		return "", err
	}
	return l.Host.Command("nft", append([]string{"list", "set"}, strings.Fields(set)...)...), nil
}
