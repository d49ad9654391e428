package linux_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
)

// TestGuideBuilds follows docs/writing-plugins.md in an empty module without a network: plugin and
// tests compile, and the plugin answers VERSION.
func TestGuideBuilds(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"))
	dir := t.TempDir()
	follow(t, dir)
	run(t, dir, "go", "vet", ".")
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir, cmd.Env = dir, append(environment(), "CNI_COMMAND=VERSION")
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0"}`)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"supportedVersions"`) {
		t.Errorf("VERSION: %v\n%s", err, out)
	}
}

// TestGuideSuite runs the tests of the guide's plugin. Faults must be injected.
func TestGuideSuite(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"), testnet.Tool("ip"), tracer.Supported,
		testnet.Kernel(kernel.FeatureMacvlan))
	dir := t.TempDir()
	follow(t, dir)
	out := run(t, dir, "go", "test", "-vet=off", "-v", "-count=1", ".")
	for _, fault := range []string{
		`faults/addresses/ADD\n[^=]* [1-9][0-9]* changes`,
		`faults/addresses/system_calls_of_ADD\n[^=]*something, [1-9][0-9]* faults injected`,
		`faults/addresses/system_calls_of_DEL\n[^=]*something, [1-9][0-9]* faults injected`,
		`faults/addresses/system_calls_of_GC\n[^=]*something, [1-9][0-9]* faults injected`,
	} {
		if !regexp.MustCompile(`=== RUN +TestSuite/` + fault).MatchString(out) {
			t.Errorf("no match for %s in:\n%s", fault, out)
		}
	}
}

// follow makes the module of the guide in dir: the commands and the files that the page lists. It
// replaces `go get` by this repository.
func follow(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "writing-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tenon-cni/tenon"
	run(t, dir, "go", "mod", "init", "example.org/mymacvlan")
	run(t, dir, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+root)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile("(?s)Write this to `([a-z_.]+)`:\n\n```go\n(.*?)```")
	files := file.FindAllSubmatch(page, -1)
	if len(files) != 2 {
		t.Fatalf("the guide has %d files, expected 2", len(files))
	}
	files = append(files, [][]byte{nil, []byte("go.sum"), sums})
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, string(f[1])), f[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// environment makes the go command use this repository and the module cache only.
func environment() []string {
	return append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
}

// run runs a command in a module and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
