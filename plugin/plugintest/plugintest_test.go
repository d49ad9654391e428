package plugintest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

const bugVariable = "PLUGINTEST_BUGS"

func bugsOfRun() bugs { return bugs(os.Getenv(bugVariable)) }

func TestMain(m *testing.M) {
	plugintest.Main(m, hostlocal.Plugin, define(bugsOfRun()), defineChained(bugsOfRun()))
}

// TestSuite passes, because the plugin has no bugs. VER-02: results are in the version of the
// request. TestSuiteFindsBugs runs it with bugs.
func TestSuite(t *testing.T) { plugintest.Run(t, plugintest.Suite{Plugin: define(bugsOfRun())}) }

// TestChained is TestSuite for a chained plugin.
func TestChained(t *testing.T) { plugintest.Run(t, chainedSuite(bugsOfRun())) }

func FuzzChained(f *testing.F) { plugintest.Fuzz(f, chainedSuite("")) }

// TestSuiteFindsBugs shows that each contract can fail, and with which messages.
func TestSuiteFindsBugs(t *testing.T) {
	t.Parallel()
	for _, row := range []planted{
		{"leaks", "descriptor stays open", []string{"used before", "descriptors"}},
		{"versions", "result has another sandbox", []string{"has sandbox /another"}},
		{"versions", "examples have no addresses",
			[]string{"in which ADD works with no example: [0.1.0 0.2.0]"}},
		{"input", "wrong configuration has no code", []string{"mtu = x: code 999"}},
		{"input", "unknown key is refused without its name",
			[]string{`unknown key org.example.unknown = "odd": code 2`}},
		{"input", "error has a reserved code", []string{"code 42 is not assigned"}},
		{"input", "ADD has a code of STATUS", []string{"code 50 is reserved for STATUS"}},
		{"faults", "link stays when ADD fails", []string{"+ c link eth0"}},
		{"faults", "error is swallowed", []string{"the call succeeds although \"up veth"}},
		{"del", "DEL needs the namespace,DEL needs the previous result,DEL needs the configuration",
			[]string{"DEL, no-netns: ", "DEL, no-prevResult: ", "DEL, broken-mtu: "}},
		{"del", "DEL detaches all,DEL forgets the address",
			[]string{"- other link eth0", "+ file "}},
		{"gc", "GC does nothing", []string{"stale-1"}},
		{"gc", "GC collects all", []string{"- kept link eth0"}},
		{"drift", "CHECK does not look",
			[]string{"CHECK succeeds although the attachment has changed"}},
		{"drift", "CHECK does not say what,CHECK repairs",
			[]string{`CHECK does not name "eth0"`, "state has changed"}},
		{"repeat", "second ADD succeeds", []string{"second ADD of an attachment: error <nil>"}},
		{"concurrent", "address is given twice", []string{"both have 10.1.0.7"}},
		{"processes", "result contains the program's name",
			[]string{"output in one process (-) and in many (+) differs"}},
	} {
		t.Run(string(row.bugs), func(t *testing.T) { row.found(t, "TestSuite") })
	}
	// Short mode injects no faults at system calls, which are necessary to find these bugs.
	for _, row := range []planted{
		{"faults", "note stays when ADD is killed",
			[]string{"the process was killed before system call", "must leave nothing", "/note"}},
		{"faults", "SIGTERM ends ADD", []string{"received SIGTERM at system call", "the signal ended the process"}},
	} {
		t.Run(string(row.bugs), func(t *testing.T) { row.found(t, "TestSuite", "-test.short=false") })
	}
}

// TestSuiteFindsBugsOfChained is TestSuiteFindsBugs for contracts that concern only chained plugins
// or differ for them.
// PL-ADD-06, PL-ADD-08
func TestSuiteFindsBugsOfChained(t *testing.T) {
	t.Parallel()
	for _, row := range []planted{
		{"previous", "missing previous result is accepted",
			[]string{"ADD of c succeeded, want one of the codes [7]"}},
		{"previous", "poor previous result has no code",
			[]string{"code 999 does not report a wrong configuration, want 2 or 7: marker ADD: no interface"}},
		{"versions", "versions without interfaces are announced",
			[]string{"ADD in CNI version 0.1.0", "marker ADD: prevResult has no interface"}},
		{"versions", "DNS is lost", []string{"result of ADD is not the previous one", `"ndots:2"`}},
		{"versions", "interfaces are in another order",
			[]string{"result of ADD is not the previous one", `"veth0"`}},
		{"versions", "interface is lost",
			[]string{"result of ADD is not the previous one", `"veth0"`}},
		{"faults", "undo is forgotten", []string{"+ host link veth0 ifalias"}},
		{"del", "DEL needs the namespace", []string{"DEL, no-netns: ", "DEL, netns-destroyed: "}},
		{"del", "DEL needs the previous result", []string{"+ no-prevResult link eth0 ifalias"}},
		{"del", "DEL leaves the container marked", []string{"+ twice link eth0 ifalias"}},
		{"del", "DEL removes all marks", []string{"other"}},
		{"del", "DEL without namespace leaves the host marked",
			[]string{"+ host link veth", "no-netns"}},
		{"del", "DEL needs the interface", []string{"DEL, interface-gone: "}},
		{"check", "CHECK is blind", []string{"CHECK without an ADD before succeeds"}},
		{"check", "CHECK counts addresses", []string{"3 addresses"}},
		{"drift", "CHECK is blind", []string{"CHECK succeeds although the attachment has changed"}},
		{"gc", "GC does nothing", []string{"stale-1"}},
		{"repeat", "second ADD is refused",
			[]string{"second ADD of an attachment: error marker ADD: marked already"}},
		{"repeat", "result is another each time",
			[]string{"second ADD of an attachment has result"}},
		{"processes", "result contains the program's name",
			[]string{"output in one process (-) and in many (+) differs"}},
	} {
		t.Run(row.contract+" "+string(row.bugs), func(t *testing.T) { row.found(t, "TestChained") })
	}
}

// TestVeth checks the attachments that chained plugins start from: containers reach one another and
// the host in both families, and the host-side veth disappears with the container.
func TestVeth(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, defineChained(""),
		`{"cniVersion":"1.1.0","name":"net","type":"marker"}`)
	a, b := r.Add("a"), r.Add("b")
	for i, ip := range a.IPs {
		testnet.Reaches(t, r.Container("b"), ip.Address.Addr(), true)
		testnet.Reaches(t, r.Container("b"), b.IPs[i].Gateway, true)
		testnet.Reaches(t, r.Host, ip.Address.Addr(), true)
	}
	r.Remove("b")
	if again := r.Add("b"); !cmp.Equal(again.Interfaces[0], b.Interfaces[0]) {
		t.Errorf("host-side veth is %+v, before %+v", again.Interfaces[0], b.Interfaces[0])
	}
}

// TestJournal runs the contract that injects faults on a host with a journal: it starts plugins as
// processes, outside of -short.
func TestJournal(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSuite$/^faults$")
	cmd.Env = append(os.Environ(), journal.Env+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("the plugins of the suite wrote %v into the journal of the host (%v)", files, err)
	}
}

// planted is a set of bugs with the expected messages of a contract.
type planted struct {
	contract string
	bugs     bugs
	says     []string
}

// found expects that the suite finds the bugs, in the mode of this test unless flags contain another.
func (p planted) found(t *testing.T, test string, flags ...string) {
	t.Parallel()
	flags = append([]string{"-test.failfast", "-test.run", "^" + test + "$/^" + p.contract + "$",
		fmt.Sprintf("-test.short=%t", testing.Short())}, flags...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], flags...)
	cmd.Env = append(os.Environ(), bugVariable+"="+string(p.bugs))
	out, err := cmd.CombinedOutput()
	says := append(p.says, "--- FAIL: "+test+"/"+p.contract)
	if p.contract != "leaks" {
		says = append(says, "contract "+p.contract+": ")
	}
	for _, text := range says {
		if !strings.Contains(string(out), text) {
			t.Errorf("contract %s does not report %q (%v):\n%s", p.contract, text, err, out)
		}
	}
}
