// Package plugintest is the test suite for CNI plugins made with package plugin. It puts a plugin through every contract that
// holds for all plugins, on a real kernel:
//
//	func TestMain(m *testing.M) { plugintest.Main(m, demo.Plugin) }
//
//	func TestSuite(t *testing.T) { plugintest.Run(t, plugintest.Suite{Plugin: demo.Plugin}) }
//
//	func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: demo.Plugin}) }
//
// The contracts are subtests of Run, and each failure names the requirements behind it, as package conformance lists them:
// versions and results; hostile input; previous results; a fault at each change; DEL under all circumstances; CHECK after
// each drift; GC; repair; repeated and concurrent calls; the same bytes in one process as in many; leaks. Tests of the
// plugin's own features use [Runtime].
//
// The suite needs Linux, root or CAP_NET_ADMIN and CAP_SYS_ADMIN, and the tools ip, nft, tc and bridge. Faults at system calls
// need ptrace(2) and an amd64 processor. A test that lacks something is skipped and says so; with CI or TENON_STRICT in the
// environment it fails. TENON_FAULTS=all breaks each system call in every way, which takes several times as long.
package plugintest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest/nstest"
)

// Suite is a plugin, and the facts about it that its tests need. Only Plugin is required.
type Suite struct {
	// Plugin is the plugin under test.
	Plugin plugin.Definition

	// Delegates are plugins that Plugin calls, beside those given to [Main].
	Delegates []plugin.Definition

	// Examples are the configurations to test with, the richest first. nil stands for those of Plugin, see
	// [plugin.Info.Examples]. There must be one.
	Examples []plugin.Example

	// Rewrite adapts an example to the test: it makes each file and directory of the host that conf names lead into dir. The
	// suite looks for leftovers there and nowhere else on disk. It does so by itself for ipam.dataDir of host-local. May be
	// nil.
	Rewrite func(conf map[string]any, dir string)

	// Setup makes what the examples expect on a host, such as a parent interface. May be nil.
	Setup func(testing.TB, *Net)

	// Before attaches a container before the plugin is called for it the first time, and returns the result of the plugins
	// before in the chain; nil if it only prepares the container. All it makes must end with the interfaces of the container.
	// A nil Before is [Veth] for a plugin of [plugin.RoleChained], and nothing for others: test a plugin that works alone and
	// in a chain a second time with Veth.
	Before func(testing.TB, *Net, *Namespace) *cni.Result

	// TakesOver is true for a plugin whose interface replaces the interface of Before, with its addresses and routes. The
	// result of every other plugin contains the previous result (PL-ADD-06).
	TakesOver bool

	// Drifts are changes that CHECK has to report, beyond the usual ones: link, MAC address, addresses and routes of the
	// container's interface. A drift replaces the usual one of its name. Each is tried with the first example that has its
	// Key, and DEL has to succeed afterwards.
	Drifts []Drift

	// Distinguish changes the requests for container number n, from 1, of those that exist at the same time, where two cannot
	// have the same: requested addresses, ports of the host. May be nil.
	Distinguish func(q *Request, n int)

	// Repeatable is true if a second ADD of an attachment succeeds and changes nothing. It has to for a plugin of
	// [plugin.RoleChained]; for others the second ADD must fail unless this is set (PL-ADD-03).
	Repeatable bool

	served *served // set by [Run]
}

// Net is a host and its containers, network namespaces that end with the test.
type Net = nstest.Net

// Namespace is the network namespace of a host or a container.
type Namespace = nstest.Namespace

// Drift is a change to an attachment that the plugin does not make itself.
type Drift struct {
	Name string // of the subtest
	Key  string // the key of the configuration on which the drift depends; empty: it concerns every example

	// Break makes the change and returns the object that the error of CHECK has to name.
	Break func(testing.TB, Attached) (object string)
}

// Attached is an attachment as ADD left it.
type Attached struct {
	*Net
	Container *Namespace
	IfName    string         // of the interface in the container
	Conf      map[string]any // the configuration of the network
	Result    *cni.Result    // of ADD
	Dir       string         // the directory given to [Suite.Rewrite]
}

// linkedIn are the plugins of the test binary. [Main] sets them before the first test; nothing changes them afterwards.
var linkedIn []plugin.Definition

// Main runs the tests of a package and exits with their status, which is not 0 if the tests leave a file descriptor, a
// thread in another namespace or a goroutine behind. TestMain calls it.
//
// linked are the plugins of the test binary: the plugin under test and the delegates of its configurations, such as an IPAM
// plugin. Of two with the same name the last counts. They can be called in the process of the tests, and started under the
// name of one of them the test binary is that plugin: in this way the suite runs plugins as processes.
func Main(m *testing.M, linked ...plugin.Definition) {
	for _, d := range slices.Backward(linked) {
		if d.Name == filepath.Base(os.Args[0]) {
			os.Exit(plugin.Main(d, plugin.Caller(linked, false), "test"))
		}
	}
	linkedIn = linked
	// With the race detector a process would sleep for a second before it ends.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testnet.Main(m)
}

// contract is a subtest of the suite. It runs on a host of its own, with the first example or with every one.
type contract struct {
	name   string
	test   func(*testing.T, *Runtime)
	every  bool   // example
	kernel bool   // the test depends on the kernel; others depend on the protocol only
	demand string // what a plugin has to do
	rules  string // identifiers of [conformance.Row], separated by blanks
}

var contracts = []contract{
	{
		"versions", versions, true, false,
		"ADD, CHECK and DEL work in each version that VERSION announces; the result is valid and in the version of the request.",
		"PL-ADD-04 PL-ADD-06 PL-ADD-12 PL-VRS-01 PL-VRS-04 RES-01",
	},
	{
		"input", input, true, false,
		"ADD refuses a wrong configuration with code 2, 6 or 7 and changes nothing; it accepts unknown keys or names them.",
		"CFG-40 DIS-25 ERR-01 ERR-03",
	},
	{
		"previous", previous, true, false,
		"A chained plugin requires prevResult, refuses one it cannot use with code 2, 6 or 7, and repairs a sloppy one.",
		"PL-ADD-08 PL-CHK-02 RES-10",
	},
	{
		"faults", faults, true, true,
		"Whatever change fails, or is the last before the process is killed: a failed ADD leaves nothing, and DEL, or GC alone, " +
			"removes all that is left. Record an object before you make it, undo in reverse order, return each error.",
		"ERR-01 PL-ADD-10 PL-DEL-01 PL-DEL-05 PL-GC-01",
	},
	{
		"del", del, true, true,
		"DEL succeeds with as much of the request as it gets, removes all of the attachment and nothing else.",
		"PL-DEL-01 PL-DEL-02 PL-DEL-03 PL-DEL-04 PL-DEL-05 PL-DEL-10 R-32",
	},
	{
		"check", check, true, true,
		"CHECK of an intact attachment succeeds from right after ADD on, and changes nothing; CHECK without an ADD fails.",
		"PL-CHK-03 PL-CHK-07 PL-CHK-09",
	},
	{
		"drift", drift, false, true,
		"CHECK fails if anything differs from prevResult, names the object, and repairs nothing; DEL works all the same.",
		"PL-CHK-04 PL-CHK-05 PL-CHK-09",
	},
	{
		"gc", gc, false, true,
		"GC removes everything of attachments that are not listed, and nothing of listed ones or of other networks.",
		"PL-GC-01 PL-GC-02 PL-GC-06 PL-GC-09",
	},
	{
		"repair", repair, true, true,
		"Repair restores rules of the host that something else has removed, changes nothing else, and refuses a container that is gone.",
		"",
	},
	{
		"repeat", repeat, false, false,
		"A second ADD of an attachment fails, or is repeatable and changes nothing; an interface name in use is refused.",
		"PL-ADD-03",
	},
	{
		"concurrent", concurrent, false, false,
		"Calls for many containers at the same time succeed, no address is assigned twice, and nothing is left.",
		"LIF-07",
	},
	{
		"processes", processes, false, false,
		"A call has the same output in this process, in a process of its own, and linked into a runtime.",
		"LIF-14",
	},
}

// explain logs the contract that a test has broken, with its requirements.
func (c contract) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	rows, err := conformance.Rows()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range rows {
		if slices.Contains(strings.Fields(c.rules), r.ID) {
			fmt.Fprintf(&text, "\n  %s, %s: %s", r.ID, r.Level, r.Title)
		}
	}
	t.Logf("contract %s: %s%s", c.name, c.demand, text.String())
}

// asksForExample reports whether subtests of a suite are to be run, and no others.
func asksForExample(suite string) bool {
	return strings.Contains(flag.Lookup("test.run").Value.String(), "^"+suite+"$/")
}

// Run runs the suite as subtests of t: one for each contract, and in it one for each example. It must be called from a test
// that is not parallel, because it counts the open file descriptors of the process.
func Run(t *testing.T, s Suite) {
	t.Helper()
	s.served = &served{versions: map[cni.Version]bool{}}
	further := sampled && t.Name() != "TestSuite" && !asksForExample(t.Name())
	if s.Examples == nil {
		s.Examples = s.Plugin.Examples()
	}
	if len(s.Examples) == 0 {
		t.Fatalf("plugin %s has no examples to test with", s.Plugin.Name)
	}
	if !further {
		t.Run("leaks", func(t *testing.T) { leaks(newUsed(t, &s, s.Examples[0])) })
	}
	for _, c := range contracts {
		if further && !c.kernel {
			continue
		}
		examples := s.Examples
		if !c.every || sampled && !asksForExample(t.Name()) {
			examples = examples[:1]
		}
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() { c.explain(t) })
			if c.name == "versions" {
				t.Cleanup(func() { s.announcesTooMuch(t) })
			}
			for _, example := range examples {
				t.Run(example.Name, func(t *testing.T) {
					t.Parallel()
					c.test(t, newUsed(t, &s, example))
				})
			}
		})
	}
}
