package operator

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ops/bundle"
	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// examined are the findings that doctor has on a broken host, by the number of its fault: the ID,
// and a pattern for the title, the cause and the owner.
var examined = map[int]string{
	1:  `firewall.forward-drop .*cannot reach other hosts.*policy of chain inet fw transit drops`,
	2:  `firewall.forward-drop .*policy of chain FORWARD of iptables-legacy.*iptables-legacy`,
	3:  `firewall.forward-drop .*policy of chain FORWARD of iptables.*docker.*DOCKER-USER -i cni0`,
	4:  `firewall.forward-drop .*inet firewalld filter_FORWARD.*firewalld.*--zone=trusted`,
	6:  `firewall.forward-drop .*published ports.*rule 1 of chain FORWARD`,
	7:  `firewall.forward-drop .*containers of one bridge cannot reach each other.*policy of chain FORWARD`,
	8:  `traffic.route-none web has no route`,
	9:  `routes.no-default .*no IPv4 default route`,
	10: `routes.overlap route 10.77.0.0/25 to vpn0`,
	12: `sysctl.rp-filter-routes .*203.0.113.9/32.*up1`,
	15: `traffic.link-down .*host-side veth of web`,
	16: `traffic.bridge-port .*br1`,
	19: `traffic.bridge-stp`,
	21: `addresses.fdb a static entry of bridge cni0 sends frames for container web to port veth`,
	22: `addresses.neighbour .*10.77.0.2 has the MAC address .* container web has 02:00:00:00:00:99`,
	23: `addresses.neighbour |addresses.duplicate `,
	24: `addresses.dad-failed fd77::2 on eth0 of container web is in state dadfailed: db has it`,
	26: `addresses.gateway cni0 has lost 10.77.0.1`,
	27: `mtu.uplink up0 has MTU 1200, containers of network pods have 1500`,
	28: `mtu.black-hole .*inet fw out drops the messages`,
	29: `mtu.ends eth0 of container web has MTU 9000, its peer veth`,
	30: `attachments.rules-missing masquerade rules.*db and web are missing`,
	31: `firewall.foreign-snat .*ip vpnnat post.*10.99.99.99.*never arrive`,
	33: `firewall.foreign-dnat port 8080/tcp of container web.*ip old pre.*10.77.0.250:80, which does not exist`,
	35: `sysctl.forwarding net.ipv4.ip_forward is 0`,
	36: `sysctl.disable-ipv6 net.ipv6.conf.eth0.disable_ipv6 is 1 in web`,
	37: `sysctl.accept-ra up0 ignores router advertisements`,
	38: `sysctl.bridge-nf .*bridge-nf-call-iptables is 0`,
}

// ofThisMachine are groups of checks that look at more than the namespaces of the test.
var ofThisMachine = []string{"limits", "dns", "clock"}

// state reads the state of the host from the namespace of the caller.
func (n *node) state() *doctor.State {
	n.t.Helper()
	o := doctor.Options{OnlyPaths: true, CacheDir: network.NoCacheDir,
		Client: &network.Client{Caller: plugin.Linked{Plugins: all.Plugins}}}
	for _, c := range []string{"web", "db"} {
		o.Records = append(o.Records, n.records[c])
	}
	for start := time.Now(); ; {
		s, err := doctor.Read(n.t.Context(), o)
		if err != nil {
			n.t.Fatal(err)
		}
		if !late(s.Missing) || time.Since(start) > testnet.Patience {
			return s
		}
	}
}

// late reports whether a part of the state was not read in time, because this machine is busy.
func late(missing map[string]string) bool {
	for _, reason := range missing {
		if strings.Contains(reason, "not read after") {
			return true
		}
	}
	return false
}

// run runs checks. If one of them does not end in time, because this machine is busy, it runs them
// again.
func run(t *testing.T, s *doctor.State, checks []doctor.Check) *doctor.Report {
	t.Helper()
	for start := time.Now(); ; {
		r := doctor.Run(t.Context(), s, checks, nil)
		timedOut := slices.ContainsFunc(r.Checks, func(c doctor.Result) bool {
			return c.Status == doctor.TimedOut
		})
		if !timedOut || time.Since(start) > testnet.Patience {
			return r
		}
	}
}

// examine runs the checks on the host.
func (n *node) examine() *doctor.Report {
	n.t.Helper()
	var s *doctor.State
	n.Host.Do(func() { s = n.state() })
	checks := slices.DeleteFunc(doctor.Checks(), func(c doctor.Check) bool {
		return slices.Contains(ofThisMachine, c.Group())
	})
	r := run(n.t, s, checks)
	n.replays(s, r, checks)
	return r
}

// replays checks that doctor finds the same on a state that a bundle holds.
func (n *node) replays(s *doctor.State, want *doctor.Report, checks []doctor.Check) {
	n.t.Helper()
	text, _, err := bundle.State(s, bundle.Schemas(all.Described()))
	if err != nil {
		n.t.Fatal(err)
	}
	stored, err := bundle.LoadState(text)
	if err != nil {
		n.t.Fatal(err)
	}
	got := run(n.t, stored, checks)
	if diff := cmp.Diff(findings(want), findings(got)); diff != "" {
		n.t.Errorf("doctor on the stored state (-live +stored)\n%s", diff)
	}
}

// isHealthy checks that doctor finds nothing.
func (n *node) isHealthy() {
	n.t.Helper()
	if r := n.examine(); r.Worst() != doctor.Info || !r.Complete {
		n.t.Errorf("doctor on the healthy host:\n%s", findings(r))
	}
}

// finds checks that doctor has a finding that matches a pattern.
func (n *node) finds(pattern string) {
	n.t.Helper()
	if r := n.examine(); !regexp.MustCompile("(?m)^(" + pattern + ")").MatchString(findings(r)) {
		n.t.Errorf("doctor does not find %s:\n%s", pattern, findings(r))
	}
}

// findings returns a line for each finding, and for each check that did not end.
func findings(r *doctor.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		var fixes []string
		for _, x := range f.Fix {
			fixes = append(fixes, x.Command)
		}
		fmt.Fprintf(
			&b,
			"%s %s | %s | %s | %s | %v\n",
			f.ID,
			f.Title,
			strings.ReplaceAll(f.Text, "\n", " "),
			f.Owner,
			strings.Join(fixes, "; "),
			f.Affects,
		)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped %s: %s\n", s.Check, s.Reason)
	}
	return b.String()
}

// TestHealthyHost: the host on which all other tests begin has no findings.
func TestHealthyHost(t *testing.T) {
	t.Parallel()
	newNode(t).isHealthy()
}

// TestFullTables fills tables of the kernel that all namespaces share, and empties them again.
func TestFullTables(t *testing.T) { //nolint:paralleltest // changes settings of the whole machine
	testnet.Require(t, testnet.OwnMachine)
	n := newNode(t)
	n.shell(
		`nft 'add table ip track; add chain ip track in { type filter hook input priority 0; }; ` +
			`add rule ip track in ct state new counter'`,
	)
	n.connect("web 10.77.0.1:9100")
	for _, x := range []struct {
		number        int
		setting, want string
		inHost        bool
		count         func(s *doctor.State) int64
	}{
		{32, "net/netfilter/nf_conntrack_max", "limits.conntrack conntrack is full", true, func(s *doctor.State) int64 {
			return number(t, s.Host.Own().Settings["net.netfilter.nf_conntrack_count"])
		}},
		{48, "net/ipv4/neigh/default/gc_thresh3", "limits.neighbours .*IPv4.*gc_thresh3", false, func(s *doctor.State) int64 {
			return s.Node.Neighbours["ipv4"]
		}},
		{49, "fs/inotify/max_user_instances", "limits.inotify-instances 1 of 1 inotify instances of UID 0", false, func(s *doctor.State) int64 {
			return 1
		}},
	} {
		t.Run(fmt.Sprint(x.number), func(t *testing.T) { //nolint:paralleltest // as above
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			limits := func() string {
				var s *doctor.State
				if x.inHost {
					n.Host.Do(func() { s = n.state() })
				} else {
					s = n.state()
				}
				checks := slices.DeleteFunc(
					doctor.Checks(),
					func(c doctor.Check) bool { return c.Group() != "limits" },
				)
				return findings(run(t, s, checks))
			}
			full := regexp.MustCompile("(?m)^" + x.want)
			if got := limits(); full.MatchString(got) {
				t.Errorf("before: %s", got)
			}
			file := "/proc/sys/" + x.setting
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s *doctor.State
			n.Host.Do(func() { s = n.state() })
			if !x.inHost {
				s = n.state()
			}
			if err := os.WriteFile(file, []byte(fmt.Sprint(x.count(s))), 0); err != nil {
				t.Fatal(err)
			}
			if got := limits(); !full.MatchString(got) {
				t.Errorf("with %d in %s: %s", x.count(s), x.setting, got)
			}
			if err := os.WriteFile(file, before, 0); err != nil {
				t.Fatal(err)
			}
			if got := limits(); full.MatchString(got) {
				t.Errorf("after: %s", got)
			}
		})
	}
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDoctorChangesNothing compares the state of all namespaces before and after an examination of a
// host with faults.
func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.shell(`nft flush ruleset; ip link set up0 mtu 1200; sysctl -qw net.ipv4.ip_forward=0`)
	before := testnet.Snapshot(t, n.Spaces())
	if r := n.examine(); r.Worst() != doctor.Error {
		t.Errorf("no error on a broken host:\n%s", findings(r))
	}
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("state has changed:\n%s", diff)
	}
}
