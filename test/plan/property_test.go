package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/plan"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestPlanIsTheOperation compares the steps of plans with the differences that the real operations
// make, on generated hosts, and checks that planning changes nothing.
func TestPlanIsTheOperation(t *testing.T) {
	t.Parallel()
	first := *seed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	hosts := *seeds
	switch {
	case hosts != 0:
	case testing.Short():
		hosts = 2
	default:
		hosts = 8
	}
	for i := range hosts {
		s := fmt.Sprint(first + int64(i))
		t.Run("seed="+s, func(t *testing.T) {
			t.Parallel()
			run(t, "property", s)
		})
	}
}

// generated is a host with random networks.
type generated struct {
	*world
	*rand.Rand
	networks []string
	attached map[string]bool // "NETWORK CONTAINER"
	ports    int
}

func property(w *world) {
	number, err := strconv.ParseUint(w.argument, 10, 64)
	w.must(err)
	g := &generated{world: w, Rand: rand.New(rand.NewPCG(number, 1)), attached: map[string]bool{}}
	for i := range 3 {
		w.container(fmt.Sprint("c", i))
	}
	g.host()
	for i := range 2 {
		g.generate(i)
	}
	const operations = 6
	for range operations {
		args := g.operation()
		g.compare(args)
		if w.failed {
			fmt.Printf("seed %s, command %q\n", w.argument, args)
			for _, n := range g.networks {
				b, _ := os.ReadFile(filepath.Join(w.dir, "net.d", n+".conflist"))
				fmt.Printf("%s\n", b)
			}
			return
		}
	}
}

func (g *generated) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generated, list ...T) T { return list[g.IntN(len(list))] }

// host makes links, routes, sysctls and rules of other programs.
func (g *generated) host() {
	g.shell("ip link add up0 type veth peer name far && ip link set far up && ip link set up0 up mtu " + pick(g, "1500", "1400") +
		" && ip addr add 192.0.2.1/24 dev up0 && ip addr add 2001:db8:1::1/64 dev up0 nodad && ip route add default via 192.0.2.2")
	for _, optional := range []string{
		"ip link add br9 type bridge && ip link set br9 up && ip addr add 10.99.0.1/24 dev br9",
		"ip link add cni0 type bridge && ip link set cni0 up",
		"ip route add 198.51.100.0/24 via 192.0.2.9 metric 7",
		"ip route add blackhole 203.0.113.0/24; ip rule add from 10.0.0.0/8 lookup 100 priority 77",
		"sysctl -qw net.ipv4.ip_forward=1",
		"sysctl -qw net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.default.rp_filter=1",
		"sysctl -qw net.ipv6.conf.all.forwarding=1",
		"nft 'add table inet fw; add chain inet fw f { type filter hook forward priority 0; policy accept; }; add set inet fw s { type ipv4_addr; flags interval; }; add element inet fw s { 10.0.0.0/8 }; add rule inet fw f ip saddr @s counter accept'",
		"nft 'add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }; add rule ip nat POSTROUTING ip saddr 172.17.0.0/16 oifname != docker0 counter masquerade'",
		"iptables-nft -A FORWARD -i up0 -p tcp -m multiport --dports 1,2 -j DROP",
		"iptables-legacy -t nat -A POSTROUTING -s 172.18.0.0/16 -j MASQUERADE",
		"ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev up0",
	} {
		if g.chance(50) {
			g.shell(optional)
		}
	}
}

// features are the main plugins with the kernel features that they need.
var features = map[string][]kernel.Feature{
	"bridge": {kernel.FeatureBridge}, "ptp": {kernel.FeatureVeth}, "macvlan": {kernel.FeatureMacvlan},
	"ipvlan": {kernel.FeatureIPvlan}, "vlan": {kernel.FeatureVLAN}, "dummy": {kernel.FeatureDummy},
	"tap": {kernel.FeatureTun},
}

// generate writes a network with a random chain.
func (g *generated) generate(i int) {
	var kinds []string
	for _, kind := range []string{"bridge", "bridge", "ptp", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "tap"} {
		if testnet.Kernel(features[kind]...)() == nil {
			kinds = append(kinds, kind)
		}
	}
	main := map[string]any{"type": pick(g, kinds...)}
	if g.chance(30) {
		main["mtu"] = 1300
	}
	switch main["type"] {
	case "bridge":
		main["bridge"] = pick(g, "cni0", "br9", fmt.Sprint("br", i))
		for _, option := range []string{"isGateway", "ipMasq", "hairpinMode", "promiscMode", "macspoofchk", "portIsolation"} {
			if g.chance(40) {
				main[option] = true
			}
		}
		if main["promiscMode"] == true {
			delete(main, "hairpinMode") // they exclude each other
		}
	case "ptp":
		main["ipMasq"] = g.chance(50)
	case "macvlan", "ipvlan", "vlan":
		main["master"] = "up0"
		delete(main, "mtu")
		if main["type"] == "vlan" {
			main["vlanId"] = 10 + i
		}
	}
	subnet := fmt.Sprintf("10.%d.0.0/24", 80+i)
	if g.chance(70) {
		ranges := []any{[]any{map[string]any{"subnet": subnet}}}
		if g.chance(40) {
			ranges = append(ranges, []any{map[string]any{"subnet": fmt.Sprintf("fd%d::/64", 80+i)}})
		}
		main["ipam"] = map[string]any{"type": "host-local", "ranges": ranges, "routes": pick(g, []any{}, []any{map[string]any{"dst": "0.0.0.0/0"}})}
	} else {
		main["ipam"] = map[string]any{"type": "static", "addresses": []any{map[string]any{
			"address": fmt.Sprintf("10.%d.0.%d/24", 80+i, 5+g.IntN(20)), "gateway": fmt.Sprintf("10.%d.0.1", 80+i)}}}
	}
	plugins := []map[string]any{main}
	add := func(percent int, p map[string]any) {
		if g.chance(percent) {
			plugins = append(plugins, p)
		}
	}
	add(50, map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true},
		"snat": g.chance(70), "masqAll": g.chance(20)})
	add(40, map[string]any{"type": "firewall", "backend": pick(g, "nftables", "nftables", "iptables")})
	add(40, map[string]any{"type": "tuning", "sysctl": map[string]any{"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"},
		"mtu": 1280 + g.IntN(20)})
	add(20, map[string]any{"type": "tuning", "mac": "02:11:22:33:44:55", "allmulti": true})
	if testnet.Kernel(kernel.FeatureIFB, kernel.FeatureShaping)() == nil {
		add(25, map[string]any{"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000})
	}
	if testnet.Kernel(kernel.FeaturePolicyRules)() == nil {
		add(20, map[string]any{"type": "sbr"})
	}
	if testnet.Kernel(kernel.FeatureVRF)() == nil {
		add(20, map[string]any{"type": "vrf", "vrfname": "blue"})
	}
	name := fmt.Sprint("net", i)
	g.network(name, plugins...)
	g.networks = append(g.networks, name)
}

// operation returns the arguments of a random operation, after a random disturbance.
func (g *generated) operation() []string {
	network, container := pick(g, g.networks...), pick(g, g.containers...)
	ifName := "eth" + strings.TrimPrefix(network, "net")
	key := network + " " + container
	switch n := g.IntN(100); {
	case n < 50 && !g.attached[key] || len(g.attached) == 0:
		g.attached[key] = true
		args := []string{"add", network, container, "--ifname", ifName}
		if g.chance(60) {
			g.ports++
			args = append(args, "--cap", fmt.Sprintf(`portMappings=[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]`, 8000+g.ports))
		}
		return args
	case n < 70:
		delete(g.attached, key)
		return []string{"del", network, container, "--ifname", ifName}
	case n < 80:
		return append([]string{"gc", network}, pick(g, "--keep-recorded", "--keep-none", "--keep-running"))
	}
	g.disturb()
	return []string{"repair"}
}

// disturb deletes and changes objects as another program does.
func (g *generated) disturb() {
	network, container := pick(g, g.networks...), pick(g, g.containers...)
	inside := "ip -n " + container + " "
	ifName := "eth" + strings.TrimPrefix(network, "net")
	g.shell(pick(g,
		"nft flush ruleset",
		"nft list table inet tenon >/dev/null 2>&1 && nft delete table inet tenon || true",
		"nft flush set inet tenon masq4 2>/dev/null || true; iptables -t nat -F 2>/dev/null || true",
		inside+"addr flush dev "+ifName+" 2>/dev/null || true",
		inside+"route flush dev "+ifName+" 2>/dev/null || true",
		inside+"link set "+ifName+" down 2>/dev/null || true",
		inside+"link delete "+ifName+" 2>/dev/null || true",
		"ip netns exec "+container+" sysctl -qw net.ipv6.conf."+ifName+".disable_ipv6=1 2>/dev/null || true",
		"ip link delete cni0 2>/dev/null || true",
		"ip addr flush dev br9 2>/dev/null || true",
		"sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0",
	))
}

// compare plans an operation, runs it, and compares.
func (g *generated) compare(args []string) {
	untouched := g.state()
	out, wrong, planned := g.tenon(append([]string{"plan", args[0], "--json"}, args[1:]...)...)
	if now := g.state(); now != untouched {
		g.errorf("plan has changed the host:\n%s", testnet.Diff(untouched, now))
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		g.errorf("plan: %v\n%s\n%s", err, out, wrong)
		return
	}
	before, files := g.read(), g.files()
	result, stderr, status := g.tenon(append(args, "--json")...)
	after := g.read()
	if (p.Failure == nil) != (status == 0) || (planned == 0) != (status == 0) {
		g.errorf("plan %d: %+v; operation %d: %s", planned, p.Failure, status, stderr)
		return
	}
	if status != 0 {
		delete(g.attached, strings.Join(args[1:3], " "))
	} else if got, want := stable(string(p.Result)), stable(result); compact(got) != compact(want) {
		g.errorf("planned result %s\nreal result %s", got, want)
	}
	want := append(g.lines(before, after), fileLines(files, g.files())...)
	slices.Sort(want)
	var got []string
	for _, s := range p.Steps {
		switch s.Kind {
		case plan.KindPlugin:
			continue
		case plan.KindFile, plan.KindLease, plan.KindRecord:
			if s.Derived {
				continue
			}
		}
		if onlyMAC(s.Before, s.After) {
			continue
		}
		got = append(got, line(s.Where, string(s.Action), string(s.Kind), s.Object))
	}
	got = slices.DeleteFunc(got, volatile)
	slices.Sort(got)
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		g.errorf("from the real operation (-) to the plan (+):\n%s", testnet.Diff(b, a))
	}
	for _, n := range p.Notes {
		g.errorf("note: %s", n)
	}
}

// lines returns the differences that an operation has made.
func (g *generated) lines(before, after *host.Host) (list []string) {
	for i := range before.Namespaces {
		where := "host"
		if i > 0 {
			where = g.containers[i-1]
		}
		for _, c := range host.DiffNamespace(&before.Namespaces[i], &after.Namespaces[i]) {
			if onlyMAC(c.Before, c.After) {
				continue
			}
			list = append(list, line(where, string(c.Action), string(c.Kind), c.Object))
		}
	}
	list = slices.DeleteFunc(list, volatile)
	slices.Sort(list)
	return list
}

// files returns the contents of the files that an operation can change.
func (w *world) files() map[string]string {
	all := map[string]string{}
	for _, dir := range []string{"/run", "/var/lib"} {
		w.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Dir(path) == "/run/netns" {
				return err
			}
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		}))
	}
	return all
}

// fileLines returns the changes of leases, attachment records, and files of plugins.
func fileLines(before, after map[string]string) (list []string) {
	add := func(action host.Action, path, text string) {
		base := filepath.Base(path)
		_, noLease := netip.ParseAddr(base)
		switch {
		case noLease == nil:
			list = append(list, line("host", string(action), string(plan.KindLease), base))
		case filepath.Base(filepath.Dir(path)) == "records":
			var r struct {
				Record struct{ Network, Container, IfName string }
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				panic(err)
			}
			object := strings.Join([]string{r.Record.Network, r.Record.Container, r.Record.IfName}, "/")
			list = append(list, line("host", string(action), string(plan.KindRecord), object))
		case strings.HasPrefix(path, "/run/cni/") && !strings.Contains(base, "lock"):
			list = append(list, line("host", string(action), string(plan.KindFile), path))
		}
	}
	for path, text := range after {
		if old, ok := before[path]; !ok {
			add(host.Added, path, text)
		} else if old != text {
			add(host.Changed, path, text)
		}
	}
	for path, text := range before {
		if _, ok := after[path]; !ok {
			add(host.Deleted, path, text)
		}
	}
	return list
}

// onlyMAC reports whether the MAC address is the only difference: a bridge without an address of its
// own takes the lowest one of its ports, which are random.
func onlyMAC(before, after string) bool {
	return stable(before) == "MAC MAC" && stable(after) == "MAC MAC"
}

func line(words ...string) string { return stable(strings.Join(words, " ")) }

// volatile reports whether a line depends on time or on a random MAC address.
func volatile(line string) bool {
	return strings.Contains(line, "fe80:") || strings.Contains(line, "ff00::")
}

var mac = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

func stable(text string) string { return mac.ReplaceAllString(text, "MAC") }

func compact(text string) string { return strings.Join(strings.Fields(text), "") }

func (w *world) read() *host.Host {
	o := host.Options{OnlyPaths: true, AllSettings: true}
	for _, c := range w.containers {
		o.Paths = append(o.Paths, "/run/netns/"+c)
	}
	h, err := host.Read(context.Background(), o)
	w.must(err)
	return h
}

// state returns the whole state of the host and its files as text.
func (w *world) state() string {
	var b strings.Builder
	h := w.read()
	for i := range h.Namespaces {
		for _, c := range host.DiffNamespace(&host.Namespace{}, &h.Namespaces[i]) {
			text := fmt.Sprintf("%d %s %s %s\n", i, c.Kind, c.Object, c.After)
			// The kernel adds link-local addresses when a link has its carrier, and some routes after
			// the detection of duplicate addresses.
			if (c.Kind != host.KindRoute || !c.Derived) && !volatile(text) {
				b.WriteString(text)
			}
		}
		fmt.Fprintf(&b, "%d peers %v generation %d\n", i, h.Namespaces[i].Peers, h.Namespaces[i].Ruleset.Generation)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		w.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Dir(path) == "/run/netns" {
				fmt.Fprintln(&b, path, err)
				return err
			}
			text, err := os.ReadFile(path)
			info, _ := d.Info()
			fmt.Fprintf(&b, "%s %v %s %x\n", path, info.Mode(), info.ModTime(), text)
			return err
		}))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	w.must(err)
	return b.String() + string(mounts)
}
