package firewall_test

import (
	"errors"
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

// reuse makes two containers with the same addresses, one after the other.
func reuse(t testing.TB, conf string) *lab {
	t.Helper()
	l := newLab(t, conf, "br0")
	l.plug("old", "br0", 0, 2)
	l.plug("new", "br0", 0, 2)
	return l
}

// TestAddressReuse is R-33: the late DEL of a container that had the address before takes nothing from who has it now, and
// with nothing but its key the last DEL takes everything.
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
			bare := l.request(cni.Del, "new", "") // not even the backend is known
			delete(bare.Conf, "prevResult")
			bare.Netns = ""
			l.Must(bare)
			l.Unchanged(empty)
		})
	}
}

// The same with both at once, many times: in the end the new container is let through.
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

// TestGC: what attachments had that are not valid any more goes, the rest stays.
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

// The content of the user's chain is never touched, and neither are rules of the user.
func TestAdminChain(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables","iptablesAdminChainName":"MINE"`+sameBridge, "br0")
	l.plug("a", "br0", 0, 2)
	for _, rule := range []string{"-N MINE", "-A MINE -s 10.9.0.2/32 -j ACCEPT", "-A FORWARD -s 10.9.0.2/32 -j ACCEPT"} {
		l.Host.Command("iptables", strings.Fields(rule)...)
	}
	l.add("a", "a")
	l.check("a")
	l.Host.Command("iptables", "-A", "MINE", "-d", "10.9.0.2/32", "-j", "DROP")
	l.del("a")
	out := l.saved()
	for _, rule := range []string{"-A MINE -s 10.9.0.2/32 -j ACCEPT", "-A MINE -d 10.9.0.2/32 -j DROP", "-A FORWARD -s 10.9.0.2/32 -j ACCEPT"} {
		if strings.Count(out, rule+"\n") != 1 {
			t.Errorf("not once: %s", rule)
		}
	}
	if strings.Contains(out, "-A CNI-FORWARD -s") || !strings.Contains(out, "-j CNI-FORWARD") {
		t.Errorf("after DEL:\n%s", out)
	}
}

// TestAdminChainLength: the longest name that iptables takes for a chain is accepted, and a longer one refused before anything
// is done.
func TestAdminChainLength(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	before := l.State()
	longest := strings.Repeat("A", 28)
	l.Refused(l.request(cni.Add, "a", `,"backend":"iptables","iptablesAdminChainName":"A`+longest+`"`), cni.CodeInvalidConfig)
	l.Unchanged(before)
	l.Must(l.request(cni.Add, "a", `,"backend":"iptables","iptablesAdminChainName":"`+longest+`"`))
	if out := l.saved(); !strings.Contains(out, "-j "+longest+"\n") {
		t.Errorf("no jump to the chain:\n%s", out)
	}
	l.Must(l.request(cni.Del, "a", `,"backend":"iptables"`))
}

// CHECK names the rule that is missing (firewall.md 2) and makes no chain.
func TestCheckNamesTheRule(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, rule, want string }{
		{"jump of FORWARD", "-D FORWARD 1", "-A FORWARD"},
		{"jump to the user's chain", "-D CNI-FORWARD 1", "CNI-ADMIN"},
		{"replies", "-D CNI-FORWARD 2", "-d 10.9.0.2/32"},
		{"all it sends", "-D CNI-FORWARD 3", "-s 10.9.0.2/32"},
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

// TestTakeOver: what the reference plugin has made for a container DEL removes, as that does, and ADD finds (firewall.md 7).
func TestTakeOver(t *testing.T) {
	t.Parallel()
	const folder = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(folder+"/firewall"))
	for _, backend := range []string{`,"backend":"iptables"`, `,"backend":"nftables"`, ""} {
		t.Run("to "+strings.ReplaceAll(backend, `"`, ""), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, `,"backend":"iptables"`, "br0")
			l.plug("a", "br0", 0, 2)
			l.plug("b", "br0", 0, 3)
			l.Foreign(folder, l.request(cni.Add, "a", l.conf))
			one := l.saved()
			l.conf = backend
			l.check("a") // over an upgrade
			l.conf = `,"backend":"iptables"`
			l.add("a")
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("ADD over the reference's (-reference +tenon):\n%s", diff)
			}
			l.check("a")
			l.Foreign(folder, l.request(cni.Check, "a", l.conf))
			l.Foreign(folder, l.request(cni.Add, "b", l.conf))
			l.conf = backend
			l.del("b")
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("DEL of the reference's:\n%s", diff)
			}
			l.Foreign(folder, l.request(cni.Add, "b", `,"backend":"iptables"`))
			l.Foreign(folder, l.request(cni.Del, "b", `,"backend":"iptables"`))
			if diff := cmp.Diff(one, l.saved()); diff != "" {
				t.Errorf("DEL by the reference:\n%s", diff)
			}
			l.del("a")
			if out := l.saved(); strings.Contains(out, "10.9.0.") {
				t.Errorf("left:\n%s", out)
			}
		})
	}
}

// An unknown policy is refused by ADD, before anything is done, and not by DEL (firewall.md 1).
func TestUnknownPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables"`, "br0")
	l.plug("a", "br0", 0, 2)
	before := l.State()
	for _, members := range []string{`,"ingressPolicy":"closed"`, `,"iptablesAdminChainName":"A -j ACCEPT"`, `,"iptablesAdminChainName":"-A"`, `,"iptablesAdminChainName":"A\nCOMMIT"`} {
		l.Refused(l.request(cni.Add, "a", members), cni.CodeInvalidConfig)
	}
	l.Unchanged(before)
	l.add("a")
	l.Must(l.request(cni.Del, "a", `,"ingressPolicy":"closed"`))
	if out := l.saved(); strings.Contains(out, "10.9.0.2") {
		t.Errorf("left:\n%s", out)
	}
}

// A policy needs something of the host to apply to; without one nothing is looked at.
func TestNoInterface(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	result := l.ports["a"]
	for name, interfaces := range map[string][]cni.Interface{
		"no interface of the host": result.Interfaces[2:],
		"one that is not there":    {{Name: "br9"}, result.Interfaces[2]},
	} {
		l.ports["a"] = &cni.Result{Interfaces: interfaces, IPs: []cni.IP{{Address: result.IPs[0].Address}}}
		err := l.Refused(l.request(cni.Add, "a", sameBridge), cni.CodeInvalidConfig)
		if err != nil && !strings.Contains(err.Error(), "interface") {
			t.Errorf("%s: %v", name, err)
		}
		l.add("a")
		l.del("a")
	}
	l.ports["a"] = &cni.Result{Interfaces: []cni.Interface{{Name: "br0"}}, IPs: []cni.IP{{Address: result.IPs[0].Address}}}
	l.Refused(l.request(cni.Add, "a", isolated), cni.CodeInvalidConfig)
	l.Must(l.request(cni.Add, "a", sameBridge))
}

// All addresses of the previous result count, whatever interface they are of (firewall.md 1).
func TestAddressesOfOtherInterfaces(t *testing.T) {
	t.Parallel()
	l := newLab(t, `,"backend":"iptables"`, "br0")
	l.plug("a", "br0", 0, 2)
	l.ports["a"].IPs[0].Interface = cni.Some(0)
	l.add("a")
	if out := l.saved(); !strings.Contains(out, "-s 10.9.0.2/32") {
		t.Errorf("not let through:\n%s", out)
	}
	l.check("a")
	l.del("a")
}

// Only the tools of the families in use are needed (firewall.md 2), and what is missing is named.
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
	if err != nil && strings.Count(err.Error(), "is not installed") != 1 { // said once
		t.Error(err)
	}
	if err != nil && !strings.Contains(err.Error(), "ip6tables-restore") {
		t.Error(err)
	}
	l.Must(l.request(cni.Add, "b", "")) // where the tool is not there, it is not chosen
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

// Rules of iptables of the legacy kind go, too.
func TestLegacy(t *testing.T) {
	testnet.Require(t, testnet.Tool("iptables-legacy"))
	l := newLab(t, "", "br0") // it is chosen where the legacy kind is in use
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	for _, family := range []string{"iptables", "ip6tables"} {
		l.Host.Command(family+"-legacy", "-P", "FORWARD", "DROP")
	}
	dir := t.TempDir()
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"-restore", "-save"} {
			if err := os.Symlink("/usr/sbin/"+tool+"-legacy"+verb, filepath.Join(dir, tool+verb)); err != nil {
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
	if strings.Contains(out, "10.9.0.2") || strings.Contains(out, "fd00:9::2") || !strings.Contains(out, "10.9.0.3") {
		t.Errorf("left:\n%s", out)
	}
	l.check("b")
}

// Which backend is chosen shows in what it makes.
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
		{"a last rule that drops", []string{"-A FORWARD -i eth9 -j ACCEPT", "-A FORWARD -j DROP"}, true},
		{"a last rule that rejects", []string{"-A FORWARD -j REJECT --reject-with icmp-host-prohibited"}, true},
		{"a rule that drops for others", []string{"-A FORWARD -i eth9 -j DROP"}, false},
		{"a rule that drops a port", []string{"-A FORWARD -p tcp --dport 25 -j DROP"}, false},
		{"a drop that is not the last", []string{"-A FORWARD -i eth9 -j DROP", "-A FORWARD -s 192.0.2.9"}, false},
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
					t.Errorf("iptables is chosen: %t", chosen)
				}
				l.del("a")
			})
		}
	}
}

// TestOwnChain: a user who sets the policy of the plugin's own chain to drop forwards for containers only.
func TestOwnChain(t *testing.T) {
	t.Parallel()
	l := two(t, `,"backend":"nftables"`)
	l.add("a", "c")
	l.Host.Command("nft", "chain inet tenon forward { policy drop; }")
	l.matrix("a: b c outside", "b: a", "c: a b outside", "outside: ") // what stays on a bridge is not forwarded by the host
	l.add("b")                                                        // which changes nothing of the policy
	l.matrix("b: d outside", "d: ", "outside: ")
	l.del("a")
	l.matrix("a: b", "b: a outside", "outside: ")
}

// Six containers at a time come and go on one bridge, which stays isolated while anybody is there.
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
		adds, checks, dels = append(adds, call(cni.Add, name)), append(checks, call(cni.Check, name)), append(dels, call(cni.Del, name))
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
	if out := l.saved(); strings.Contains(out, "ISOLATION") || strings.Contains(out, "10.9.0.") || slices.Contains(l.isolation(), "inet tenon isolated") {
		t.Errorf("left:\n%s", out)
	}
}
