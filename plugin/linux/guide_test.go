package linux_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
)

// TestGuide follows docs/writing-plugins.md in an empty module without a network: it builds the
// plugin, and runs the plugin's tests where the kernel has macvlan. Faults must be injected.
func TestGuide(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"))
	dir := t.TempDir()
	follow(t, dir)
	run(t, dir, "go", "build", "-o", filepath.Join(dir, "bin"), ".")
	run(t, dir, "go", "vet", ".")
	t.Run("suite", func(t *testing.T) {
		testnet.Require(t, tracer.Supported, testnet.Tool("ip"), testnet.Kernel(probe.Macvlan))
		out := run(t, dir, "go", "test", "-vet=off", "-v", "-count=1", ".")
		for _, fault := range []string{
			`faults/addresses/ADD\n.* [1-9][0-9]* changes`,
			`faults/addresses/system_calls_of_ADD\n[^=]*something, [1-9][0-9]* faults injected`,
			`faults/addresses/system_calls_of_DEL\n[^=]*something, [1-9][0-9]* faults injected`,
			`faults/addresses/system_calls_of_GC\n[^=]*something, [1-9][0-9]* faults injected`,
		} {
			if !regexp.MustCompile(`=== RUN +TestSuite/` + fault).MatchString(out) {
				t.Errorf("no match for %s in:\n%s", fault, out)
			}
		}
	})
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
	files := regexp.MustCompile("(?s)Write this to `([a-z_.]+)`:\n\n```go\n(.*?)```").FindAllSubmatch(page, -1)
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

// run runs a command in a module and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
