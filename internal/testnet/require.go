package testnet

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Need is a requirement of a test on the host. It returns an error with the reason if it is not
// met.
type Need func() error

// Require skips the test if one of the needs is not met. In a stage that must meet all of them, in
// which the environment variable CI or TENON_STRICT is not empty, the test fails instead. There is
// one exception: if TENON_VM is "later", a test that the kernel does not support is skipped, and a
// later stage, scripts/vm-tests, finds it in the log and runs it under another kernel. A need that
// is [Optional] skips the test in every stage. Only Require and [Long] skip tests.
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

// Long skips a test in short mode, in which the gate runs (make test): a test that takes long and
// proves a contract again that a shorter test proves. make test-all runs it, and so does -run with
// its name.
func Long(t testing.TB) {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	if testing.Short() && !strings.Contains(flag.Lookup("test.run").Value.String(), top) {
		t.Skip("left out by -short") // test/report counts these tests by the text
	}
}

// Optional returns a need that no stage requires, such as the history of the repository, which a
// shallow clone lacks. The test logs the reason.
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

// Root requires root privileges.
func Root() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("needs root, runs as user %d", uid)
	}
	return nil
}

// Namespaces requires permission to create network namespaces.
func Namespaces() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return ns.Close()
}

// Tool requires a program in PATH.
func Tool(name string) Need {
	return func() error {
		_, err := exec.LookPath(name)
		return err
	}
}

// Kernel requires features of the kernel.
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

// Linux requires a kernel of at least this version, for behaviour that is not a feature.
func Linux(major, minor int) Need {
	return func() error {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return fmt.Errorf("uname: %w", err)
		}
		release := unix.ByteSliceToString(u.Release[:])
		var version [2]int
		if _, err := fmt.Sscanf(release, "%d.%d", &version[0], &version[1]); err != nil {
			return fmt.Errorf("kernel version %q: %w", release, err)
		}
		if slices.Compare(version[:], []int{major, minor}) < 0 {
			return kernelError(fmt.Sprintf("Linux %d.%d or newer", major, minor))
		}
		return nil
	}
}

// WithoutIPv6 requires a kernel that was started without IPv6.
func WithoutIPv6() error {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		return kernelError("boot with ipv6.disable=1") // scripts/vm-tests parses this text
	}
	return nil
}

// OwnMachine requires a virtual machine of scripts/vm-run, for tests that change settings which all
// namespaces of a kernel share.
func OwnMachine() error {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), "rdinit=/busybox") {
		return kernelError("changes settings of all namespaces")
	}
	return nil
}

// SELinux requires a kernel that was started with SELinux. It needs no policy: without one, SELinux
// forbids nothing, and contexts are the names of initial SIDs.
func SELinux() error {
	if missing, err := kernel.Missing(kernel.FeatureSELinux); err != nil || len(missing) > 0 {
		return kernelError("boot with security=selinux") // scripts/vm-tests parses this text
	}
	return nil
}

// OptimisticDAD requires a kernel with optimistic duplicate address detection, which makes IPv6
// addresses usable during the detection.
func OptimisticDAD() error {
	if _, err := os.Stat("/proc/sys/net/ipv6/conf/all/optimistic_dad"); err != nil {
		return kernelError("the kernel is built without CONFIG_IPV6_OPTIMISTIC_DAD")
	}
	return nil
}

// OpenVSwitch requires the tools of Open vSwitch and a kernel with its datapath.
func OpenVSwitch() error {
	err := exec.Command("ovs-dpctl", "dump-dps").Run()
	if errors.As(err, new(*exec.ExitError)) {
		return kernelError("the kernel is built without CONFIG_OPENVSWITCH")
	}
	return err
}

// kernelError names the missing feature of the kernel. Another kernel may have it.
type kernelError string

func (e kernelError) Error() string { return string(e) }
