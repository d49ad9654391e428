//go:build programs

package interop

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// programsDir names the variable with the directory in which scripts/test-programs builds programs
// of other projects.
const programsDir = "TENON_PROGRAMS"

// library is the implementation of libcni, skel and types with which a program is built: its
// directory in programsDir.
type library string

const (
	compat   library = "compat"   // of Tenon, module compat/cni
	original library = "upstream" // of containernetworking
	linked   library = "linked"   // compat, with Tenon's plugins in the process of the program
)

// dir returns the directory of a program's binaries.
func (l library) dir(t *testing.T, program string) string {
	t.Helper()
	parent := os.Getenv(programsDir)
	if parent == "" {
		t.Fatalf("%s is not set: run scripts/test-programs", programsDir)
	}
	dir := filepath.Join(parent, string(l), program)
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Fatalf("%s is not built: %v", program, err)
	}
	return dir
}

// TestProgramLibraries: each program contains the library that it is built on.
func TestProgramLibraries(t *testing.T) {
	t.Parallel()
	for name, built := range map[string][]library{
		"containerd/containerd": {original, compat, linked}, "containerd/ctr": {original, compat}, "go-cni/go-cni": {original, compat, linked},
		"cnitool/cnitool": {original, compat}, "plugins/bridge": {original, compat}, "nerdctl/nerdctl": {compat},
		"buildkit/buildkit": {original, compat}, "multus/multus": {original, compat}, "whereabouts/whereabouts": {original, compat},
	} {
		for _, l := range built {
			path := filepath.Join(l.dir(t, filepath.Dir(name)), filepath.Base(name))
			if replaced := replacedLibrary(t, path); replaced != (l != original) {
				t.Errorf("%s contains Tenon's library: %t", path, replaced)
			}
		}
	}
}

// replacedLibrary reports whether a binary contains module compat/cni in place of upstream's.
func replacedLibrary(t *testing.T, path string) bool {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	must(t, err)
	modules := append(info.Deps, &info.Main) // cnitool is a program of the library's module
	i := slices.IndexFunc(modules, func(m *debug.Module) bool { return m.Path == "github.com/containernetworking/cni" })
	if i < 0 {
		t.Fatalf("%s contains no libcni", path)
	}
	replacement := modules[i].Replace
	return replacement != nil && strings.HasSuffix(replacement.Path, "compat/cni")
}

// installUpstream installs the upstream plugins in the default directory.
func (n *node) installUpstream(built library) {
	n.t.Helper()
	n.run("cp", "-r", built.dir(n.t, "plugins")+"/.", plugins)
}

// pluginSets installs the plugins with which each program runs.
var pluginSets = map[string]func(*node){
	"Tenon's plugins":    func(n *node) { n.install() },
	"upstream's plugins": func(n *node) { n.installUpstream(compat) },
}

// withPlugins runs a test with each set of plugins.
func withPlugins(t *testing.T, test func(*testing.T, func(*node))) {
	for name, install := range pluginSets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, install)
		})
	}
}

// accidents are texts that differ between two runs of the same program: MAC addresses and the
// link-local addresses from them, random names of links, paths of the test, process IDs, stacks of
// panics, and times.
var accidents = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`), "MAC"},
	{regexp.MustCompile(`fe80::[0-9a-f:]+`), "LINKLOCAL"},
	{regexp.MustCompile(`\bveth[0-9a-f]{8}\b`), "VETH"},
	{regexp.MustCompile(`net:\[[0-9]+\]`), "NETNS"},
	{regexp.MustCompile(`\btemp[0-9a-f]{8,}\b`), "TEMP"},
	{regexp.MustCompile(`/tmp/[^"' :;]*`), "PATH"},
	{regexp.MustCompile(`/proc/[0-9]+/`), "/proc/PID/"},
	{regexp.MustCompile(`(?s)\[signal SIGSEGV.*?\nexit status`), "TRACE\nexit status"}, // a bug of the plugin
	{regexp.MustCompile(`[0-9]{4}[/-][0-9]{2}[/-][0-9]{2}[ T][0-9:.]+Z?`), "TIME"},
}

// withoutAccidents replaces the texts that differ between two runs.
func withoutAccidents(text string) string {
	for _, a := range accidents {
		text = a.pattern.ReplaceAllString(text, a.name)
	}
	return text
}

// sortedLines sorts a snapshot after random names have been replaced.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sameAs fails the test if a program behaves differently with the two libraries.
func sameAs(t *testing.T, original, compat string) {
	t.Helper()
	lines := func(text string) []string { return strings.Split(withoutAccidents(text), "\n") }
	if diff := cmp.Diff(lines(original), lines(compat)); diff != "" {
		t.Errorf("differs (-upstream's library +Tenon's):\n%s", diff)
	}
}

// withoutRollback is the variable of the environment with which Tenon's library leaves a failed ADD
// to the caller, as upstream's library does.
const withoutRollback = "TENON_ROLLBACK=off"
