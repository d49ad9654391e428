package testnet_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) {
	if leak := os.Getenv("TESTNET_LEAK"); leak != "" {
		os.Unsetenv("TESTNET_LEAK")
		leaks[leak] = true
		testnet.MainWithin(m, 3*time.Second)
	}
	testnet.Main(m)
}

// leaks are the resources that TestLeak, in a process of its own, leaves behind.
var leaks = map[string]bool{}

func TestContainer(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "b", "a")
	var names []string
	for _, s := range n.Spaces() {
		names = append(names, s.Name)
	}
	if want := []string{"host", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("spaces %v, want %v", names, want)
	}
	a := n.Container("a")
	handle := testnet.NS(t, a)
	if a != n.Container("a") || handle.Same(testnet.NS(t, n.Container("b"))) ||
		handle.Same(testnet.NS(t, n.Host)) {
		t.Error("both containers have the same namespace")
	}
	out, err := exec.Command("stat", "-L", "-c", "%i", a.Path()).Output()
	if got, want := strings.TrimSpace(string(out)), fmt.Sprint(handle.ID().Inode); err != nil ||
		got != want {
		t.Errorf("the path of a child process leads to %s, %v; want %s", got, err, want)
	}
	path := a.Path()
	n.Remove("a")
	if _, err := netns.Open(path); !errors.Is(err, netns.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	n.Host.Do(func() {
		current, err := netns.Current()
		if err != nil {
			t.Fatal(err)
		}
		defer current.Close()
		if !current.Same(testnet.NS(t, n.Host)) {
			t.Errorf("in %s, want %s", current, n.Host)
		}
	})
}

// TestSnapshotSees makes the changes one after the other in one namespace.
func TestSnapshotSees(t *testing.T) {
	t.Parallel()
	n := prepared(t)
	before := testnet.Snapshot(t, n.Spaces())
	for _, row := range []struct{ name, change, want string }{
		{"link", "ip link add br1 type bridge", "+ host link br1"},
		{"up", "ip link set veth0 up", "link veth0 flags"},
		{"MTU", "ip link set veth0 mtu 1400", "+ host link veth0 mtu 1400"},
		{"MAC", "ip link set veth0 address 02:00:00:00:00:01",
			`+ host link veth0 address "02:00:00:00:00:01"`},
		{"alias", "ip link set veth0 alias text", `+ host link veth0 ifalias "text"`},
		{"alternative name", "ip link property add dev veth0 altname other",
			`+ host link veth0 altnames ["other"]`},
		{"promiscuous", "ip link set veth0 promisc on", "+ host link veth0 promiscuity 1"},
		{"master", "ip link set veth0 master br0", `+ host link veth0 master "br0"`},
		{"port", "bridge link set dev port0 isolated on",
			"+ host link port0 linkinfo info_slave_data isolated true"},
		{"bridge", "ip link set br0 type bridge ageing_time 100",
			"+ host link br0 linkinfo info_data ageing_time 100"},
		{"queueing discipline", "tc qdisc add dev veth0 root tbf rate 1mbit burst 10k latency 10ms",
			`+ host link veth0 qdisc "tbf"`},
		{"address", "ip addr add 10.1.2.3/24 dev br0", "+ host addr dev br0"},
		{"IPv6 address", "ip addr add fd00::1/64 dev br0", "+ host addr dev br0"},
		{"label", "ip addr add 10.8.0.2/24 label br0:x dev br0", "br0:x"},
		{"route", "ip route add 10.9.0.0/16 dev br0", "+ host route -4"},
		{"IPv6 route", "ip route add fd09::/64 dev br0", "+ host route -6"},
		{"route in another table", "ip route add 10.9.0.0/16 dev br0 table 100", `"table":"100"`},
		{"rule", "ip rule add from 10.0.0.1 table 100", "+ host rule -4"},
		{"IPv6 rule", "ip -6 rule add from fd00::1 table 100", "+ host rule -6"},
		{"sysctl", "sysctl -w net.ipv4.conf.veth0.arp_notify=1",
			"+ host sysctl ipv4/conf/veth0/arp_notify = 1"},
		{"forwarding", "sysctl -w net.ipv4.ip_forward=1", "+ host sysctl ipv4/ip_forward = 1"},
		{"IPv6 sysctl", "sysctl -w net.ipv6.conf.veth0.accept_ra=0",
			"+ host sysctl ipv6/conf/veth0/accept_ra = 0"},
		{"nft table", "nft add table inet more", "+ host nft table inet"},
		{"nft element", "nft add element inet test s { 10.0.0.9 }",
			`+ host nft set inet test s element "10.0.0.9"`},
		{"nft element's comment",
			`nft delete element inet test s { 10.0.0.1 }; add element inet test s { 10.0.0.1 comment "b" }`, `"comment":"b"`},
		{"nft rule", "nft add rule inet test c accept", "+ host nft rule inet test c 2"},
		{"nft chain", "nft add chain inet test d", "+ host nft chain inet test d"},
		{"link deleted", "ip link del veth0", "- host link veth0"},
	} {
		n.Host.Command("sh", "-c", shell(row.change))
		after := testnet.Snapshot(t, n.Spaces())
		if diff := testnet.Diff(before, after); !strings.Contains(diff, row.want) {
			t.Errorf("%s: difference lacks %q:\n%s", row.name, row.want, diff)
		}
		before = after
	}
}

// TestSnapshotSeesRules checks IPv6 rules, which are listed only if there are unusual ones: the
// difference must consist of the change.
func TestSnapshotSeesRules(t *testing.T) {
	t.Parallel()
	n := prepared(t)
	for _, row := range []struct{ change, want string }{
		{"add from fd00::1 table 100", "+ host rule -6 "},
		{"delete from fd00::1 table 100", "- host rule -6 "},
		{"delete priority 32766", "- host rule -6 "},
		{"add priority 32766 table main protocol kernel", "+ host rule -6 "},
		{"add priority 32766 table main", "+ host rule -6 "},
	} {
		before := testnet.Snapshot(t, n.Spaces())
		n.Host.Command("ip", strings.Fields("-6 rule "+row.change)...)
		diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces()))
		if !strings.HasPrefix(diff, row.want) || strings.Count(diff, "\n") != 1 {
			t.Errorf("%s: difference is %q, want one line that begins with %q", row.change, diff,
				row.want)
		}
	}
}

// shell quotes the arguments of nft, which contain characters that are special in the shell.
func shell(command string) string {
	if rest, ok := strings.CutPrefix(command, "nft "); ok {
		return "nft '" + rest + "'"
	}
	return command
}

func TestSnapshotSeesVLANs(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVLANFiltering))
	n := prepared(t)
	before := testnet.Snapshot(t, n.Spaces())
	n.Host.Command("bridge", "vlan", "add", "dev", "port0", "vid", "100", "untagged")
	if diff, want := testnet.Diff(before,
		testnet.Snapshot(t, n.Spaces())), `+ host vlan dev port0 {"flags":["Egress Untagged"],"vlan":100}`; strings.TrimSpace(diff) != want {
		t.Errorf("difference is %q, want %q", diff, want)
	}
}

// TestSnapshotSeesSettings checks that a snapshot shows a change of any setting of a link, although
// Snapshot does not read all settings of links each time.
func TestSnapshotSeesSettings(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	host := prepared(t).Host
	seen := 0
	for _, directory := range []string{"ipv4/conf/veth0", "ipv6/conf/veth0"} {
		host.Do(func() {
			entries, err := os.ReadDir("/proc/sys/net/" + directory)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				path := "/proc/sys/net/" + directory + "/" + e.Name()
				before, err := os.ReadFile(path)
				if err != nil {
					continue // can only be written
				}
				snapshot := testnet.Snapshot(t, []*testnet.Namespace{host})
				for _, value := range []string{"0", "1", "2", "1400"} {
					_ = os.WriteFile(path, []byte(value), 0) // some settings refuse the value
					if now, err := os.ReadFile(path); err == nil && string(now) != string(before) {
						break
					}
				}
				now, err := os.ReadFile(path)
				if err != nil || string(now) == string(before) {
					continue
				}
				seen++
				line := "sysctl " + directory + "/" + e.Name() + " = " +
					strings.TrimSpace(string(now))
				if diff := testnet.Diff(snapshot,
					testnet.Snapshot(t,
						[]*testnet.Namespace{host})); !strings.Contains(diff, line) {
					t.Errorf("%s: no %q in\n%s", path, line, diff)
				}
			}
		})
	}
	if seen < 60 {
		t.Errorf("only %d settings could be changed", seen)
	}
}

func prepared(t *testing.T) *testnet.Net {
	t.Helper()
	testnet.Require(t, testnet.Tool("nft"), testnet.Tool("bridge"), testnet.Tool("tc"),
		testnet.Tool("sysctl"))
	n := testnet.New(t)
	n.Host.Command("sh", "-ec", `
		sysctl -qw net.ipv6.conf.default.accept_dad=0
		ip -batch - <<-end
			link add br0 type bridge
			link add veth0 type veth peer name veth1
			link add port0 type veth peer name port1
			link set port0 master br0
			link set br0 up
			link set port0 up
			link set port1 up
			addr add 10.8.0.1/16 dev br0
			addr add fd08::1/64 dev br0
			route add 10.7.0.0/16 via 10.8.0.7
			route add fd07::/64 via fd08::7
		end
		nft 'table inet test {
			set s { type ipv4_addr; elements = { 10.0.0.1 comment "a", 10.0.0.2, 10.0.0.3 }; }
			chain c { type filter hook input priority 0; counter ip saddr @s drop; }
		}'`)
	return n
}

// TestSnapshotIsStable checks that counters, timers, the carrier and its consequences do not show.
func TestSnapshotIsStable(t *testing.T) {
	t.Parallel()
	n := prepared(t)
	before := testnet.Snapshot(t, n.Spaces())
	n.Host.Do(func() {
		c, err := net.Dial("udp", "10.8.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("counted")); err != nil {
			t.Error(err)
		}
	})
	n.Host.Command("ip", "link", "set", "port1", "down")
	// Timers of the bridge; the carrier is reported once a second.
	time.Sleep(1200 * time.Millisecond)
	n.Host.Command("ip", "link", "set", "port1", "up")
	testnet.Eventually(t, func() error {
		if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
			return fmt.Errorf("has changed:\n%s", diff)
		}
		return nil
	})
}

func TestSnapshotOfDirectories(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "file"), []byte("b"), 0o600)
		},
		"mode": func(dir string) error { return os.Chmod(filepath.Join(dir, "file"), 0o640) },
		"new": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)
		},
		"directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "sub"), 0o700) },
		"deleted":   func(dir string) error { return os.Remove(filepath.Join(dir, "file")) },
		"link": func(dir string) error {
			return os.Symlink("file", filepath.Join(dir, "link"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := testnet.Snapshot(t, nil, dir)
			if diff := testnet.Diff(before, testnet.Snapshot(t, nil, dir)); diff != "" {
				t.Errorf("unchanged directory:\n%s", diff)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if testnet.Diff(before, testnet.Snapshot(t, nil, dir)) == "" {
				t.Error("change not detected")
			}
		})
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	if got, want := testnet.Diff("a\nb\nb\nd", "a\nb\nc\nd\ne"), "- b\n+ c\n+ e\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLeak leaks the resource that TestMainFindsLeaks requests, by default none.
func TestLeak(t *testing.T) {
	if leaks["descriptor"] {
		kept, _ = os.Open(os.DevNull)
	}
	if leaks["goroutine"] {
		go func() { <-make(chan bool) }()
	}
	if leaks["thread"] {
		n := testnet.New(t)
		there := make(chan bool)
		go n.Host.Do(func() {
			close(there)
			<-make(chan bool)
		})
		<-there
	}
}

var kept *os.File

func TestMainFindsLeaks(t *testing.T) {
	t.Parallel()
	for leak, want := range map[string]string{
		"descriptor": "descriptor of /dev/null",
		"goroutine":  "goroutine\n",
		"thread":     "thread in net:[",
		"":           "",
	} {
		t.Run(leak, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestLeak$")
			cmd.Env = append(os.Environ(), "TESTNET_LEAK="+leak)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (leak != "") || !strings.Contains(string(out), want) {
				t.Errorf("%v, output lacks %q:\n%s", err, want, out)
			}
		})
	}
}

func TestRequire(t *testing.T) {
	missing := testnet.Need(func() error { return errors.New("no such thing") })
	for _, row := range []struct {
		name           string
		ci, strict, vm string
		need           testnet.Need
		skips, fails   bool
	}{
		{name: "met", need: testnet.Root},
		{name: "not met", need: missing, skips: true},
		{name: "not met in CI", ci: "true", need: missing, fails: true},
		{name: "not met in strict mode", strict: "1", need: missing, fails: true},
		{name: "no such tool", need: testnet.Tool("no-such-tool"), skips: true},
		{name: "no such feature", need: testnet.Kernel("nosuchkind"), skips: true},
		{name: "no such feature in strict mode", strict: "1", need: testnet.Kernel("nosuchkind"),
			fails: true},
		{name: "no such feature, but another kernel follows", ci: "true", strict: "1", vm: "later",
			need: testnet.Kernel("nosuchkind"), skips: true},
		{name: "no such tool, which another kernel does not provide", strict: "1", vm: "later",
			need: testnet.Tool("no-such-tool"), fails: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("CI", row.ci)
			t.Setenv("TENON_STRICT", row.strict)
			t.Setenv("TENON_VM", row.vm)
			r := recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				testnet.Require(&r, row.need)
			}()
			<-done
			if r.skipped != row.skips || r.failed != row.fails {
				t.Errorf("skipped %t, failed %t; want %t, %t", r.skipped, r.failed, row.skips,
					row.fails)
			}
		})
	}
}

// TestInterruptedListing: an answer that may lack objects is asked for again.
func TestInterruptedListing(t *testing.T) {
	answers := []string{"Dump was interrupted and may be inconsistent.\n[]\n", `[{"ifname":"lo"}]`}
	got, err := testnet.Whole(func() (string, error) {
		out := answers[0]
		answers = answers[1:]
		return out, nil
	})
	if got != `[{"ifname":"lo"}]` || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// recorder is a test that records its outcome.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(...any) {
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) Fatal(...any) {
	r.failed = true
	runtime.Goexit()
}

func BenchmarkSnapshot(b *testing.B) {
	n := testnet.New(b, "container")
	for b.Loop() {
		testnet.Snapshot(b, n.Spaces())
	}
}
