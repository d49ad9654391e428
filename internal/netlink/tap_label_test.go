package netlink_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMain doubles as the program that prints the security context it runs in.
func TestMain(m *testing.M) {
	if os.Args[0] == "context" {
		context, _ := os.ReadFile("/proc/self/attr/current")
		os.Stderr.Write(context)
		os.Exit(int(unix.EXDEV))
	}
	testnet.Main(m)
}

// TestExecuteLabelled checks that the program has the context, that this process keeps its own, and
// that ExecuteLabelled returns the program's error.
func TestExecuteLabelled(t *testing.T) {
	testnet.Require(t, testnet.SELinux)
	ns := testnet.New(t).Host
	const context = "unlabeled" // without a policy the kernel knows only a few contexts
	ns.Do(func() {
		err := netlink.ExecuteLabelled(context, []string{"context"})
		if !errors.Is(err, unix.EXDEV) || !strings.HasPrefix(err.Error(), context) {
			t.Errorf("executed with %v, want %s", err, context)
		}
	})
	if own, err := os.ReadFile("/proc/self/attr/current"); err != nil ||
		strings.HasPrefix(string(own), context) {
		t.Errorf("own context is %s, %v", own, err)
	}
}
