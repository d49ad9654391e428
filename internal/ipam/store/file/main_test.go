package file_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMain runs the tests, or what one of them started this executable for.
func TestMain(m *testing.M) {
	if name := os.Getenv("FILE_TEST_CHILD"); name != "" {
		os.Exit(children[name](os.Args[1:]))
	}
	testnet.Main(m)
}

// children are what processes started by tests do; they return their exit status.
var children = map[string]func(args []string) int{"churn": churn, "full-disk": fullDisk}

// child prepares a process of this executable.
func child(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "FILE_TEST_CHILD="+name)
	return cmd
}
