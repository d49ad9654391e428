package firewall_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// reuse attaches two containers with the same addresses, one after the other.
func reuse(t testing.TB, conf string) *lab {
	t.Helper()
	l := newLab(t, conf, "br0")
	l.plug("old", "br0", 0, 2)
	l.plug("new", "br0", 0, 2)
	return l
}

// TestAddressReuse: a late DEL of the container that had the address before keeps the rules of the
// current container, and the last DEL removes all rules with nothing but the attachment's key
//
func TestAddressReuse(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := reuse(t, `,"backend":"`+backend+`"`)
			l.add("new")
			l.del("new")
			empty := l.State()
			l.add("old", "new")
			l.check("new")
			before := l.State()
			l.del("old")
			l.Unchanged(before)
			l.check("new")
			bare := l.request(cni.Del, "new", "") // not even the backend
			delete(bare.Conf, "prevResult")
			bare.Netns = ""
			l.Must(bare)
			l.Unchanged(empty)
		})
	}
}

// TestAddressReuseAtOnce: ADD and DEL of the two containers run concurrently, many times; at the
// end the new container is admitted.
func TestAddressReuseAtOnce(t *testing.T) {
	t.Parallel()
	l := reuse(t, `,"backend":"iptables"`+isolated)
	for range 10 {
		l.add("old")
		add, del := l.request(cni.Add, "new", l.conf), l.request(cni.Del, "old", l.conf)
		var wg sync.WaitGroup
		wg.Go(func() { l.Must(add) })
		wg.Go(func() { l.Must(del) })
		wg.Wait()
		l.check("new")
		l.del("new")
	}
	if out := l.saved(); strings.Contains(out, "10.9.0.2") || strings.Contains(out, "ISOLATION") {
		t.Errorf("left:\n%s", out)
	}
}

// TestGC: GC removes the rules of attachments that are not valid, and keeps the others.
func TestGC(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := two(t, `,"backend":"`+backend+`"`+isolated)
			l.add("c")
			l.del("c")
			l.add("a")
			want := l.State()
			l.add("b", "c", "d")
			gc := l.Collect("a")
			gc.Conf["backend"] = backend
			l.Must(gc)
			l.Unchanged(want)
			l.check("a")
		})
	}
}

// TestAdminChain: the rules of the administrator's chain, and other rules of the administrator,
// never change.
func TestAdminChain(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables","iptablesAdminChainName":"MINE"`+sameBridge, "br0")
	l.plug("a", "br0", 0, 2)
	for _, rule := range []string{
		"-N MINE", "-A MINE -s 10.9.0.2/32 -j ACCEPT", "-A FORWARD -s 10.9.0.2/32 -j ACCEPT",
	} {
		l.Host.Command("iptables", strings.Fields(rule)...)
	}
	l.add("a", "a")
	l.check("a")
	l.Host.Command("iptables", "-A", "MINE", "-d", "10.9.0.2/32", "-j", "DROP")
	l.del("a")
	out := l.saved()
	for _, rule := range []string{"-A MINE -s 10.9.0.2/32 -j ACCEPT",
		"-A MINE -d 10.9.0.2/32 -j DROP", "-A FORWARD -s 10.9.0.2/32 -j ACCEPT"} {
		if strings.Count(out, rule+"\n") != 1 {
			t.Errorf("expected exactly once: %s", rule)
		}
	}
	if strings.Contains(out, "-A CNI-FORWARD -s") || !strings.Contains(out, "-j CNI-FORWARD") {
		t.Errorf("after DEL:\n%s", out)
	}
}

// TestAdminChainLength: the longest valid name of an iptables chain is accepted, and a longer one
// is refused before any change.
func TestAdminChainLength(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	before := l.State()
	longest := strings.Repeat("A", 28)
	l.Refused(l.request(cni.Add, "a",
		`,"backend":"iptables","iptablesAdminChainName":"A`+longest+`"`), cni.CodeInvalidConfig)
	l.Unchanged(before)
	l.Must(l.request(cni.Add, "a", `,"backend":"iptables","iptablesAdminChainName":"`+longest+`"`))
	if out := l.saved(); !strings.Contains(out, "-j "+longest+"\n") {
		t.Errorf("no jump to the chain:\n%s", out)
	}
	l.Must(l.request(cni.Del, "a", `,"backend":"iptables"`))
}

// TestCheckNamesTheRule: CHECK names the missing rule and makes no chain.
func TestCheckNamesTheRule(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, rule, want string }{
		{"jump of FORWARD", "-D FORWARD 1", "-A FORWARD"},
		{"jump to the administrator's chain", "-D CNI-FORWARD 1", "CNI-ADMIN"},
		{"replies", "-D CNI-FORWARD 2", "-d 10.9.0.2/32"},
		{"outgoing packets", "-D CNI-FORWARD 3", "-s 10.9.0.2/32"},
		{"everything", "-F", "-A FORWARD"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, `,"backend":"iptables"`, "br0")
			l.plug("a", "br0", 0, 2)
			l.add("a")
			l.Host.Command("iptables", strings.Fields(row.rule)...)
			before := l.saved()
			l.checkFails("a", row.want)
			if diff := cmp.Diff(before, l.saved()); diff != "" {
				t.Errorf("CHECK changes:\n%s", diff)
			}
		})
	}
}

// TestTakeOver: DEL removes the upstream plugin's rules of a container as upstream's DEL does, and
// ADD reuses them.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	const upstreamDir = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(upstreamDir+"/firewall"))
	for _, backend := range []string{`,"backend":"iptables"`, `,"backend":"nftables"`, ""} {
		t.Run("to "+strings.ReplaceAll(backend, `"`, ""), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, `,"backend":"iptables"`, "br0")
			l.plug("a", "br0", 0, 2)
			l.plug("b", "br0", 0, 3)
			l.Foreign(upstreamDir, l.request(cni.Add, "a", l.conf))
			one := l.saved()
			l.conf = backend
			l.check("a") // as after an upgrade
			l.conf = `,"backend":"iptables"`
			l.add("a")
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("ADD over upstream's rules (-upstream +Tenon):\n%s", diff)
			}
			l.check("a")
			l.Foreign(upstreamDir, l.request(cni.Check, "a", l.conf))
			l.Foreign(upstreamDir, l.request(cni.Add, "b", l.conf))
			l.conf = backend
			l.del("b")
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("DEL of upstream's rules:\n%s", diff)
			}
			l.Foreign(upstreamDir, l.request(cni.Add, "b", `,"backend":"iptables"`))
			l.Foreign(upstreamDir, l.request(cni.Del, "b", `,"backend":"iptables"`))
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("DEL by upstream:\n%s", diff)
			}
			l.del("a")
			if out := l.saved(); strings.Contains(out, "10.9.0.") {
				t.Errorf("left:\n%s", out)
			}
		})
	}
}

// TestUnknownPolicy: ADD refuses an unknown policy before any change, and DEL does not refuse it.
func TestUnknownPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables"`, "br0")
	l.plug("a", "br0", 0, 2)
	before := l.State()
	for _, members := range []string{`,"ingressPolicy":"closed"`,
		`,"iptablesAdminChainName":"A -j ACCEPT"`, `,"iptablesAdminChainName":"-A"`,
		`,"iptablesAdminChainName":"A\nCOMMIT"`} {
		l.Refused(l.request(cni.Add, "a", members), cni.CodeInvalidConfig)
	}
	l.Unchanged(before)
	l.add("a")
	l.Must(l.request(cni.Del, "a", `,"ingressPolicy":"closed"`))
	if out := l.saved(); strings.Contains(out, "10.9.0.2") {
		t.Errorf("left:\n%s", out)
	}
}

// TestNoInterface: a policy needs an interface of the host; without a policy the interfaces are not
// read.
func TestNoInterface(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	result := l.ports["a"]
	for name, interfaces := range map[string][]cni.Interface{
		"no interface of the host": result.Interfaces[2:],
		"missing interface":        {{Name: "br9"}, result.Interfaces[2]},
	} {
		l.ports["a"] = &cni.Result{
			Interfaces: interfaces, IPs: []cni.IP{{Address: result.IPs[0].Address}},
		}
		err := l.Refused(l.request(cni.Add, "a", sameBridge), cni.CodeInvalidConfig)
		if err != nil && !strings.Contains(err.Error(), "interface") {
			t.Errorf("%s: %v", name, err)
		}
		l.add("a")
		l.del("a")
	}
	l.ports["a"] = &cni.Result{
		Interfaces: []cni.Interface{{Name: "br0"}}, IPs: []cni.IP{{Address: result.IPs[0].Address}},
	}
	l.Refused(l.request(cni.Add, "a", isolated), cni.CodeInvalidConfig)
	l.Must(l.request(cni.Add, "a", sameBridge))
}

// TestAddressesOfOtherInterfaces: all addresses of the previous result are admitted, including
// addresses of other interfaces.
func TestAddressesOfOtherInterfaces(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables"`, "br0")
	l.plug("a", "br0", 0, 2)
	l.ports["a"].IPs[0].Interface = cni.Some(0)
	l.add("a")
	if out := l.saved(); !strings.Contains(out, "-s 10.9.0.2/32") {
		t.Errorf("not admitted:\n%s", out)
	}
	l.check("a")
	l.del("a")
}

// TestToolOfOneFamily: only the tools of the address families in use are required, and the error
// names the missing one.
func TestToolOfOneFamily(t *testing.T) {
	l := newLab(t, `,"backend":"iptables"`, "br0")
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	dir := t.TempDir()
	for _, tool := range []string{"iptables-restore", "iptables-save"} {
		if err := os.Symlink("/usr/sbin/"+tool, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	l.Host.Command("iptables", "-P", "FORWARD", "DROP")
	l.Host.Command("ip6tables", "-P", "FORWARD", "DROP")
	t.Setenv("PATH", dir)
	err := l.Refused(l.request(cni.Add, "a", l.conf), cni.CodeUnsupportedField)
	if err != nil && strings.Count(err.Error(), "is not installed") != 1 { // reported once
		t.Error(err)
	}
	if err != nil && !strings.Contains(err.Error(), "ip6tables-restore") {
		t.Error(err)
	}
	l.Must(l.request(cni.Add, "b", "")) // without the tool iptables is not chosen
	l.ports["a"].IPs = l.ports["a"].IPs[:1]
	l.add("a")
	l.check("a")
	l.del("a")
	status := l.request(cni.Status, "a", `,"backend":"iptables"`)
	status.Conf["cniVersion"] = "1.1.0"
	delete(status.Conf, "prevResult")
	if _, err := l.Do(t.Context(), status); cni.CodeOf(err) != cni.CodeNotAvailable {
		t.Errorf("STATUS: %v", err)
	}
}

// TestLegacy: rules in legacy tables are removed as well.
func TestLegacy(t *testing.T) {
	testnet.Require(t, testnet.Tool("iptables-legacy"))
	l := newLab(t, "", "br0") // iptables is chosen because the legacy variant is in use
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	for _, family := range []string{"iptables", "ip6tables"} {
		l.Host.Command(family+"-legacy", "-P", "FORWARD", "DROP")
	}
	dir := t.TempDir()
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"-restore", "-save"} {
			if err := os.Symlink("/usr/sbin/"+tool+"-legacy"+verb,
				filepath.Join(dir, tool+verb)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	l.outside()
	l.add("a", "b")
	l.check("a", "b")
	l.matrix("a: b outside", "b: a outside", "outside: ")
	l.del("a")
	out := l.Host.Command("iptables-legacy-save") + l.Host.Command("ip6tables-legacy-save")
	if strings.Contains(out, "10.9.0.2") || strings.Contains(out, "fd00:9::2") ||
		!strings.Contains(out, "10.9.0.3") {
		t.Errorf("left:\n%s", out)
	}
	l.check("b")
}

// TestAuto determines the chosen backend by its rules.
func TestAuto(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		setup []string
		want  bool // iptables
	}{
		{"no iptables", nil, false},
		{"an empty chain", []string{"-I FORWARD -s 192.0.2.9", "-D FORWARD 1"}, false},
		{"policy drop", []string{"-P FORWARD DROP"}, true},
		{"a last rule that drops", []string{
			"-A FORWARD -i eth9 -j ACCEPT", "-A FORWARD -j DROP",
		}, true},
		{"a last rule that rejects",
			[]string{"-A FORWARD -j REJECT --reject-with icmp-host-prohibited"}, true},
		{"a rule that drops for others", []string{"-A FORWARD -i eth9 -j DROP"}, false},
		{"a rule that drops a port", []string{"-A FORWARD -p tcp --dport 25 -j DROP"}, false},
		{"a drop that is not the last rule", []string{
			"-A FORWARD -i eth9 -j DROP", "-A FORWARD -s 192.0.2.9",
		}, false},
	} {
		for _, backend := range []string{"", `,"backend":"auto"`, `,"backend":"ipfw"`} {
			t.Run(row.name+strings.ReplaceAll(backend, `"`, ""), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, backend, "br0")
				l.plug("a", "br0", 0, 2)
				for _, rule := range row.setup {
					l.Host.Command("iptables", strings.Fields(rule)...)
				}
				l.add("a")
				l.check("a")
				chosen := strings.Contains(l.Host.Command("nft", "list", "ruleset"), "CNI-FORWARD")
				if chosen != row.want {
					t.Errorf("chose iptables: %t", chosen)
				}
				l.del("a")
			})
		}
	}
}

// TestOwnChain: an administrator who sets the policy of the plugin's own chain to drop forwards
// packets of containers only.
func TestOwnChain(t *testing.T) {
	t.Parallel()
	l := two(t, `,"backend":"nftables"`)
	l.add("a", "c")
	l.Host.Command("nft", "chain inet tenon forward { policy drop; }")
	// the host does not forward bridged packets
	l.matrix("a: b c outside", "b: a", "c: a b outside", "outside: ")
	l.add("b") // keeps the policy
	l.matrix("b: d outside", "d: ", "outside: ")
	l.del("a")
	l.matrix("a: b", "b: a outside", "outside: ")
}

// TestAtOnce: six containers at a time come and go on one bridge, which stays isolated until the
// last one is gone.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables"`+isolated, "br0")
	names := []string{"c0", "c1", "c2", "c3", "c4", "c5"}
	var adds, checks, dels []func() error
	call := func(verb cni.Command, name string) func() error {
		q := l.request(verb, name, l.conf)
		return func() error {
			_, err := l.Do(t.Context(), q)
			return err
		}
	}
	for i, name := range names {
		l.plug(name, "br0", 0, 2+i)
		adds, checks, dels = append(adds, call(cni.Add, name)), append(checks,
			call(cni.Check, name)), append(dels, call(cni.Del, name))
	}
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() {
			for range 3 {
				if err := errors.Join(adds[i](), checks[i](), dels[i]()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if out := l.saved(); strings.Contains(out, "ISOLATION") || strings.Contains(out, "10.9.0.") ||
		slices.Contains(l.isolation(), "inet tenon isolated") {
		t.Errorf("left:\n%s", out)
	}
}

// TestLoopback: loopback addresses in the previous result get no rule and no element, because a
// rule for them would admit packets of the host itself; DEL removes rules that upstream made.
func TestLoopback(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, `,"backend":"`+backend+`"`, "br0")
			l.plug("c", "br0", 0, 2)
			l.add("c")
			l.del("c")
			empty := l.State()
			l.add("c")
			want := l.State()
			l.del("c")
			r := l.ports["c"]
			for _, a := range []string{"127.0.0.1/8", "::1/128"} {
				r.IPs = append(r.IPs, cni.IP{Address: netip.MustParsePrefix(a), Interface: cni.Some(2)})
			}
			l.add("c")
			l.Unchanged(want)
			l.check("c")
			l.del("c")
			l.Unchanged(empty)
		})
	}
}
