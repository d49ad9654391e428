package file_test

import (
	"os"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMain runs the tests, or what one of them started this executable for.
func TestMain(m *testing.M) {
	if name := os.Getenv("FILE_TEST_CHILD"); name != "" {
		os.Exit(children[name]())
	}
	testnet.Main(m)
}

// children are what processes started by tests do; they return their exit status.
var children = map[string]func() int{}
