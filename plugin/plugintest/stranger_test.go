package plugintest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// TestStranger copies a plugin into a module of its own that uses only public packages of Tenon,
// and runs its suite: faults are injected, and a variant that leaks when killed fails.
func TestStranger(t *testing.T) {
	t.Parallel()
	testnet.Require(t, tracer.Supported, testnet.Tool("go"), testnet.Tool("ip"))
	t.Run("passes", func(t *testing.T) {
		t.Parallel()
		out, err := inOwnModule(t, "recordFirst = true", "TestSuite")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, verb := range []string{"ADD", "DEL", "GC"} {
			injected := regexp.MustCompile(`(?s)=== RUN +TestSuite/faults/Example/system_calls_of_` + verb +
				`\n[^=]*something, [1-9][0-9]* faults injected`)
			if !injected.MatchString(out) {
				t.Errorf("no fault of %s was injected:\n%s", verb, out)
			}
		}
	})
	t.Run("leaks", func(t *testing.T) {
		t.Parallel()
		out, err := inOwnModule(t, "recordFirst = false", "TestSuite/faults")
		if err == nil {
			t.Errorf("the suite passes a plugin that leaks:\n%s", out)
		}
		for _, text := range []string{"killed before system call", "(PL-DEL-01, PL-DEL-05)",
			"+ host link veth0 ifalias"} {
			if !strings.Contains(out, text) {
				t.Errorf("the suite does not report %q:\n%s", text, out)
			}
		}
	})
}

// inOwnModule runs tests of testdata/stranger in an empty module, without a network.
func inOwnModule(t *testing.T, variant, run string) (out string, err error) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"go.sum": string(sums),
		"go.mod": "module example.org/mark\n\ngo 1.26\n\nrequire github.com/tenon-cni/tenon v0.0.0\n\n" +
			"replace github.com/tenon-cni/tenon => " + root + "\n",
	}
	for _, name := range []string{"mark.go", "mark_test.go"} {
		b, err := os.ReadFile(filepath.Join("testdata", "stranger", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.Replace(string(b), "recordFirst = true", variant, 1)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-run", run, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", bugVariable+"=")
	b, err := cmd.CombinedOutput()
	return string(b), err
}
