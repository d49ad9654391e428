// Package plugintest is the test suite for CNI plugins made with package plugin. This puts a plugin through everything
// that holds for every plugin, on a real kernel:
//
//	func TestMain(m *testing.M) { plugintest.Main(m, demo.Plugin) }
//
//	func TestSuite(t *testing.T) { plugintest.Run(t, plugintest.Suite{Plugin: demo.Plugin}) }
//
//	func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: demo.Plugin}) }
//
// The contracts, one file each: versions and results; hostile input; what
// the plugins before have made; roll-back after each single change that can fail;
// DEL under all circumstances; CHECK after everything that can drift; GC; repeated and concurrent calls; the same
// bytes in one process as in many; no leaks. What is special about a plugin belongs in tests of its own, for which
// there is [Runtime].
package plugintest

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest/nstest"
)

// Suite is a plugin and what its tests have to know about it.
type Suite struct {
	Plugin    plugin.Definition
	Delegates []plugin.Definition // plugins that it calls, beside those given to [Main]
	Examples  []plugin.Example    // configurations to test with, the richest first; nil stands for those of Plugin

	// Rewrite makes an example fit for the test: what it says about the machine has to lead into dir, which is all that
	// is looked at on disk. For the dataDir of host-local this has been done. May be nil.
	Rewrite func(conf map[string]any, dir string)

	// Setup makes what the examples expect to find on a host, such as a parent interface. May be nil.
	Setup func(testing.TB, *Net)

	// Before attaches a container before the plugin is called for it the first time, and returns the result of those who
	// do so; nil if it makes only what the plugin needs for this container. It ends with the interfaces of the container, so it must
	// leave nothing else. nil is [Veth] for plugins that are always chained,
	// and for the others nothing: a plugin that works alone too is tested a second time with Veth.
	Before func(testing.TB, *Net, *Namespace) *cni.Result

	// TakesOver says that the container's interface takes the place of those of Before: their addresses and routes are its own.
	// Otherwise the result of ADD has all that the one before has.
	TakesOver bool

	// Drifts are what CHECK has to notice, beside the usual: link, MAC, addresses and routes of the container's
	// interface, but for those whose names are here too. Each is tried with the first example that has what is broken. DEL has to
	// work after it, too.
	Drifts []Drift

	// Distinguish changes the requests for the n-th of all containers that there are at the same time (the first, 0, is spared),
	// where two cannot have the same: addresses that the plugin is asked for, ports of the host. May be nil.
	Distinguish func(q *Request, n int)

	// Repeatable says that ADD of an attachment that is there succeeds and changes nothing, as that of a chained plugin does.
	// Otherwise it has to fail.
	Repeatable bool

	served *served // set by [Run]
}

// Net is a host and its containers, network namespaces that end with the test.
type Net = nstest.Net

// Namespace is the network namespace of a host or a container.
type Namespace = nstest.Namespace

// Drift is something that goes wrong with an attachment behind the plugin's back.
type Drift struct {
	Name string
	Key  string // of the configuration; without it there is nothing to go wrong. Empty: there always is

	// Break makes it go wrong and returns what the error of CHECK has to name.
	Break func(testing.TB, Attached) (object string)
}

// Attached is an attachment as ADD left it.
type Attached struct {
	*Net
	Container *Namespace
	IfName    string
	Conf      map[string]any // of the network
	Result    *cni.Result
	Dir       string // what the plugins keep on disk
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

// contracts are the subtests. Each is run on a host of its own, with the first example or with every one.
var contracts = []struct {
	name   string
	test   func(*testing.T, *Runtime)
	every  bool // example
	kernel bool // is what it is about; the others are about the protocol
}{
	{"versions", versions, true, false},
	{"input", input, true, false},
	{"previous", previous, true, false},
	{"faults", faults, true, true},
	{"del", del, true, true},
	{"check", check, true, true},
	{"drift", drift, false, true},
	{"gc", gc, false, true},
	{"repair", repair, true, true},
	{"repeat", repeat, false, false},
	{"concurrent", concurrent, false, false},
	{"processes", processes, false, false},
}

// asksForExample reports whether subtests of a suite are to be run, and no others.
func asksForExample(suite string) bool {
	return strings.Contains(flag.Lookup("test.run").Value.String(), "^"+suite+"$/")
}

// Run runs the suite. It must be called from a test that is not parallel, as it counts what the process has open.
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
