//go:build amd64

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) {
	if !runAsRuntime(os.Args) {
		testnet.Main(m)
	}
}

// build returns the path of a built tenon, and a directory with its plugins.
func build(t *testing.T) (tenon, plugins string) {
	t.Helper()
	dir := t.TempDir()
	tenon, plugins = filepath.Join(dir, "tenon"), filepath.Join(dir, "plugins")
	build := exec.Command("go", "build", "-o", tenon, "./cmd/tenon")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{build, exec.Command(tenon, "install", plugins)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return tenon, plugins
}

// snapshot returns the state without the files that host-local keeps on purpose: the last address,
// so that addresses rotate, and the index of owners.
func snapshot(t testing.TB, net *testnet.Net, state string) string {
	t.Helper()
	lines := strings.Split(testnet.Snapshot(t, net.Spaces(), state), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, "/last_reserved_ip.") || strings.Contains(line, "/.owners")
	})
	return strings.Join(lines, "\n")
}

// settledDiff returns the difference from the initial state after the kernel had time to settle.
func settledDiff(before string, snapshot func() string) string {
	diff := testnet.Diff(before, snapshot())
	for end := time.Now().Add(testnet.Patience); diff != "" && time.Now().Before(end); {
		time.Sleep(30 * time.Millisecond)
		diff = testnet.Diff(before, snapshot())
	}
	return diff
}
