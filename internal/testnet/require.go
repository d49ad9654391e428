package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Need is something a test needs of the machine. It returns an error that says why it is not there.
type Need func() error

// Require skips the test if one of the needs is not met. Where the stage must meet them all, which the environment
// variables CI and TENON_STRICT say by not being empty, the test fails instead. The exception is what the kernel lacks
// where TENON_VM is "later": a later stage, scripts/vm-tests, finds the test in the log and runs it under another kernel.
// A need that is [Optional] skips the test in every stage. Nothing else in the tree skips.
func Require(t testing.TB, needs ...Need) {
	t.Helper()
	for _, need := range needs {
		err := need()
		switch {
		case err == nil:
		case errors.As(err, new(optionalError)):
			t.Skip("skipped:", err)
		case os.Getenv("TENON_VM") == "later" && errors.As(err, new(kernelError)):
			t.Skip("deferred to vm:", err)
		case os.Getenv("CI") != "" || os.Getenv("TENON_STRICT") != "":
			t.Fatal("required here:", err)
		default:
			t.Skip("skipped:", err)
		}
	}
}

// Optional is a need that no stage demands, such as the history of the repository, which a shallow
// clone lacks. The log of the test names the reason.
func Optional(need Need) Need {
	return func() error {
		if err := need(); err != nil {
			return optionalError{err}
		}
		return nil
	}
}

type optionalError struct{ error }

func (e optionalError) Unwrap() error { return e.error }

// Root is the need to run as the superuser.
func Root() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("needs root, runs as user %d", uid)
	}
	return nil
}

// Namespaces is the need to make network namespaces.
func Namespaces() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return ns.Close()
}

// Tool is the need for an executable.
func Tool(name string) Need {
	return func() error {
		_, err := exec.LookPath(name)
		return err
	}
}

// Kernel is the need for features of the kernel.
func Kernel(features ...kernel.Feature) Need {
	return func() error {
		missing, err := kernel.Missing(features...)
		if err != nil || len(missing) == 0 {
			return err
		}
		help := make([]string, len(missing))
		for i, f := range missing {
			help[i] = f.Help()
		}
		return kernelError(strings.Join(help, "; "))
	}
}

// WithoutIPv6 is the need for a kernel that was started without IPv6.
func WithoutIPv6() error {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		return kernelError("boot with ipv6.disable=1") // as scripts/vm-tests reads it
	}
	return nil
}

// SELinux is the need for a kernel that was started with it. It needs no policy: without one, nothing is forbidden, and the
// contexts are the names of initial SIDs.
func SELinux() error {
	if missing, err := kernel.Missing(kernel.FeatureSELinux); err != nil || len(missing) > 0 {
		return kernelError("boot with security=selinux") // as scripts/vm-tests reads it
	}
	return nil
}

// OptimisticDAD is the need for a kernel that lets IPv6 addresses be used while duplicates of them are looked for.
func OptimisticDAD() error {
	if _, err := os.Stat("/proc/sys/net/ipv6/conf/all/optimistic_dad"); err != nil {
		return kernelError("the kernel is built without CONFIG_IPV6_OPTIMISTIC_DAD")
	}
	return nil
}

// kernelError says what the kernel lacks. Another one may have it.
type kernelError string

func (e kernelError) Error() string { return string(e) }
