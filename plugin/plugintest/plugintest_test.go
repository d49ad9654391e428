package plugintest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
)

const bugVariable = "PLUGINTEST_BUGS"

func bugsOfRun() bugs { return bugs(os.Getenv(bugVariable)) }

func TestMain(m *testing.M) { plugintest.Main(m, define(bugsOfRun()), defineChained(bugsOfRun())) }

// TestSuite passes: the plugin has no bugs. VER-02: results are in the version of the request. TestSuiteFindsBugs runs it with some.
func TestSuite(t *testing.T) { plugintest.Run(t, plugintest.Suite{Plugin: define(bugsOfRun())}) }

// TestChained is TestSuite for a chained plugin.
func TestChained(t *testing.T) { plugintest.Run(t, chainedSuite(bugsOfRun())) }

func FuzzChained(f *testing.F) { plugintest.Fuzz(f, chainedSuite("")) }

// TestSuiteFindsBugs shows that each contract can fail, and what it says then.
func TestSuiteFindsBugs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		contract string
		bugs     bugs
		says     []string
	}{
		{"leaks", "descriptor stays open", []string{"used before", "descriptors"}},
		{"versions", "result has another sandbox", []string{"has sandbox /another"}},
		{"input", "wrong configuration has no code", []string{"mtu = x: code 999"}},
		{"input", "unknown key is refused without its name", []string{`unknown key org.example.unknown = "odd": code 2`}},
		{"input", "error has a reserved code", []string{"code 42 is not assigned"}},
		{"input", "ADD has a code of STATUS", []string{"code 50 is one of STATUS"}},
		{"faults", "link stays when ADD fails", []string{"+ c link eth0"}},
		{"faults", "error is swallowed", []string{"success although \"up veth"}},
		{"del", "DEL needs the namespace,DEL needs the previous result,DEL needs the configuration",
			[]string{"DEL, no-netns: ", "DEL, no-prevResult: ", "DEL, broken-mtu: "}},
		{"del", "DEL detaches all,DEL forgets the address", []string{"- other link eth0", "+ file "}},
		{"gc", "GC does nothing", []string{"stale-1"}},
		{"gc", "GC collects all", []string{"- kept link eth0"}},
		{"drift", "CHECK does not look", []string{"CHECK has not noticed it"}},
		{"drift", "CHECK does not say what,CHECK repairs", []string{`CHECK does not name "eth0"`, "state has changed"}},
		{"repeat", "second ADD succeeds", []string{"second ADD of an attachment: <nil>"}},
		{"concurrent", "address is given twice", []string{"both have 10.1.0.7"}},
		{"processes", "result tells the program's name", []string{"in one process and in many"}},
	} {
		t.Run(string(row.bugs), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.failfast", "-test.run", "^TestSuite$/^"+row.contract+"$")
			cmd.Env = append(os.Environ(), bugVariable+"="+string(row.bugs))
			out, err := cmd.CombinedOutput()
			for _, text := range append(row.says, "--- FAIL: TestSuite/"+row.contract) {
				if !strings.Contains(string(out), text) {
					t.Errorf("contract %s has not said %q (%v):\n%s", row.contract, text, err, out)
				}
			}
		})
	}
}
