package filestore_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMain runs the tests or, in a process that a test started, the child.
func TestMain(m *testing.M) {
	if name := os.Getenv("FILE_TEST_CHILD"); name != "" {
		if errno := linkErrors[os.Getenv(noLinksEnv)]; errno != 0 {
			if err := withoutLinks(errno); err != nil {
				panic(err)
			}
		}
		os.Exit(children[name](os.Args[1:]))
	}
	testnet.Main(m)
}

// children are the functions of processes that tests start; they return the exit status.
var children = map[string]func(args []string) int{
	"churn": churn, "allocate": allocateMany, "full-disk": fullDisk, "no-links": noLinks,
}

// memoryDir is the environment variable with the directory of a process that inMemory started.
const memoryDir = "FILE_TEST_MEMORY"

// inMemory runs a test again in a separate process, on a file system in memory, and returns true
// there, because creating thousands of files on a disk takes seconds. If it returns false, the test
// must return.
func inMemory(t *testing.T) bool {
	t.Helper()
	testnet.Require(t, testnet.Root)
	if dir := os.Getenv(memoryDir); dir != "" {
		for _, err := range []error{
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tenon-test", dir, "tmpfs", 0, ""),
			unix.Setxattr(dir, "user.tenon.test", nil, 0), // since Linux 6.6
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return true
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), memoryDir+"="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig kills the child if the thread that started it ends
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// child prepares a process of this test binary.
func child(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "FILE_TEST_CHILD="+name)
	return cmd
}
