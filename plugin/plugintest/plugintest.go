// Package plugintest is the test suite for CNI plugins written with package plugin. It tests every
// contract that holds for all plugins, on a real kernel:
//
//	func TestMain(m *testing.M) { plugintest.Main(m, demo.Plugin) }
//
//	func TestSuite(t *testing.T) { plugintest.Run(t, plugintest.Suite{Plugin: demo.Plugin}) }
//
//	func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: demo.Plugin}) }
//
// The contracts are subtests of Run. Each failure names the requirements of the contract, which
// package conformance lists. The contracts cover versions and results, hostile input, previous
// results, a fault at each change, DEL under all circumstances, CHECK after each drift, GC, repair,
// repeated and concurrent calls, equal output in one process and in many, and leaks. Tests of the
// features of a single plugin use [Runtime]. plugin's own features use [Runtime].
//
// The suite needs Linux, root (or CAP_NET_ADMIN and CAP_SYS_ADMIN), and the tools ip, nft, tc and
// bridge. Faults at system calls need ptrace(2) and an amd64 processor. A test without its
// prerequisites is skipped with a message; if CI or TENON_STRICT is set in the environment, it
// fails. With -short, the suite breaks system calls only of plugins that do not use Tenon's kernel
// package, and repeats calls less often.
package plugintest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest/nstest"
)

// Suite describes a plugin to its tests. Only Plugin is required.
type Suite struct {
	// Plugin is the plugin under test.
	Plugin plugin.Definition

	// Delegates are plugins that Plugin calls, in addition to those given to [Main].
	Delegates []plugin.Definition

	// Examples are the configurations to test with, at least one; the first should use the most
	// options. nil stands for the examples of Plugin, see [plugin.Info.Examples].
	Examples []plugin.Example

	// Rewrite adapts an example to the test: it moves each file and directory that conf names into
	// dir. The suite searches only dir for leftovers on disk. It rewrites ipam.dataDir of
	// host-local itself. May be nil.
	Rewrite func(conf map[string]any, dir string)

	// Setup creates objects that the examples expect on a host, such as a parent interface. May be
	// nil.
	Setup func(testing.TB, *Net)

	// Server starts a server on a host that the plugin needs, such as a database, and sets the keys
	// of conf by which the plugin finds it. The server must end with the test. Server returns a
	// function that describes the state of the server, one line for each fact, or nil. Calls of DEL
	// with other broken or missing keys keep these keys. May be nil.
	Server func(t testing.TB, n *Net, conf map[string]any) (state func() string)

	// Before attaches a container before the first call of the plugin for it, and returns the
	// result of the plugins before in the chain, or nil if it only prepares the container.
	// Everything it creates must disappear with the interfaces of the container. If Before is nil,
	// plugins with [plugin.RoleChained] get [Veth], and other plugins get an empty container: test
	// a plugin that works both alone and in a chain a second time with Veth.
	Before func(testing.TB, *Net, *Namespace) *cni.Result

	// TakesOver is true for a plugin that replaces the interface of Before with its own and moves
	// the addresses and routes to it. The result of every other plugin contains the previous result
	// (PL-ADD-06).
	TakesOver bool

	// Drifts are changes that CHECK must report, in addition to the default ones: link, MAC
	// address, addresses and routes of the container's interface. A drift replaces the default one
	// of the same name. Each drift is tried with the first example that has its Key, and DEL must
	// succeed afterwards.
	Drifts []Drift

	// Distinguish changes the requests for container number n, counted from 1, if two containers
	// cannot make the same request at the same time, for example for the same address or host port.
	// May be nil.
	Distinguish func(q *Request, n int)

	// Repeatable is true if a second ADD of an attachment succeeds and changes nothing. Plugins
	// with [plugin.RoleChained] are always repeatable; for other plugins the second ADD must fail
	// unless Repeatable is set (PL-ADD-03).
	Repeatable bool

	served *served // set by [Run]
}

// Net is a host and its containers. Their network namespaces end with the test.
type Net = nstest.Net

// Namespace is the network namespace of a host or a container.
type Namespace = nstest.Namespace

// Drift is a change to an attachment that the plugin does not make itself.
type Drift struct {
	Name string // of the subtest
	// Key is a key of the configuration that the drift depends on; empty stands for every example.
	Key string

	// Break makes the change and returns the object that the error of CHECK must name.
	Break func(testing.TB, Attached) (object string)
}

// Attached is an attachment after ADD.
type Attached struct {
	*Net
	Container *Namespace
	IfName    string         // of the interface in the container
	Conf      map[string]any // the configuration of the network
	Result    *cni.Result    // of ADD
	Dir       string         // the directory given to [Suite.Rewrite]
}

// linkedIn are the plugins of the test binary. [Main] sets them before the first test.
var linkedIn []plugin.Definition

// Main runs the tests of a package and exits with their status. The status is not 0 if the tests
// leave a file descriptor, a thread in another namespace or a goroutine behind. TestMain calls it.
//
// linked are the plugins of the test binary: the plugin under test and the delegates of its
// configurations, such as an IPAM plugin. The last of several with the same name is used. The tests
// call them in their own process, or start the test binary under the name of a plugin: Main then
// runs that plugin, and the suite can test plugins as processes. Main sets TENON_JOURNAL to "off", so
// that these plugins do not write into a journal of the host.
func Main(m *testing.M, linked ...plugin.Definition) {
	if status, called := plugin.MainOf(linked, plugin.Caller(linked, false), "test"); called {
		os.Exit(status)
	}
	linkedIn = linked
	for name, value := range map[string]string{
		// With the race detector a process would sleep for a second before it ends.
		"GORACE":    os.Getenv("GORACE") + " atexit_sleep_ms=0",
		journal.Env: journal.Off,
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	testnet.Main(m)
}

// contract is a subtest of the suite. It runs on a host of its own, with the first example or with
// all examples.
type contract struct {
	name   string
	test   func(*testing.T, *Runtime)
	every  bool   // run with every example
	kernel bool   // depends on the kernel and not only on the protocol
	demand string // requirement on a plugin in words
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
		"Whichever change fails or is interrupted by a kill: a failed ADD leaves nothing, and DEL, or GC alone, removes " +
			"all that is left. Record an object before you create it, undo in reverse order, return each error.",
		"ERR-01 PL-ADD-10 PL-DEL-01 PL-DEL-05 PL-GC-01",
	},
	{
		"del", del, true, true,
		"DEL succeeds with any part of the request, and removes the whole attachment and nothing else.",
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
		"GC removes everything that belongs to unlisted attachments, and nothing of listed ones or of other networks.",
		"PL-GC-01 PL-GC-02 PL-GC-06 PL-GC-09",
	},
	{
		"repair", repair, true, true,
		"Repair restores rules that another program has removed, changes nothing else, and refuses a container that no longer exists.",
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

// explain logs a contract that a test has broken, with its requirements.
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

// asksForExample reports whether -test.run selects subtests of a suite.
func asksForExample(suite string) bool {
	return strings.Contains(flag.Lookup("test.run").Value.String(), "^"+suite+"$/")
}

// Run runs the suite as subtests of t: one for each contract, with one subtest for each example.
// The calling test must not be parallel, because Run counts the open file descriptors of the
// process.
func Run(t *testing.T, s Suite) {
	t.Helper()
	s.served = &served{versions: map[cni.Version]bool{}}
	short := testing.Short() && !asksForExample(t.Name())
	if s.Examples == nil {
		s.Examples = s.Plugin.Examples()
	}
	if len(s.Examples) == 0 {
		t.Fatalf("plugin %s has no examples to test with", s.Plugin.Name)
	}
	t.Run("leaks", func(t *testing.T) { leaks(newUsed(t, &s, s.Examples[0])) })
	for _, c := range contracts {
		examples := s.Examples
		if !c.every || short && c.kernel {
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
