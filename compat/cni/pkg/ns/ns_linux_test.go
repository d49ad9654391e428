package ns_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/ns"
)

func TestCheckNetNS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self/ns/net", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/proc/self/ns/net":        true,
		"/proc/thread-self/ns/net": true,
		link:                       true,
		"/proc/self/ns/mnt":        false,
		file:                       false,
		file + "/none":             false,
		"":                         false,
	} {
		if got, err := ns.CheckNetNS(path); got != want || err != nil {
			t.Errorf("%q: %v, %v", path, got, err)
		}
	}
}

func TestAnotherNamespace(t *testing.T) {
	t.Parallel()
	child := exec.Command("cat")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatalf("create a network namespace: %v", err)
	}
	path := "/proc/" + strconv.Itoa(child.Process.Pid) + "/ns/net"
	if _, err := os.Stat(path); err != nil {
		t.Errorf("namespace of the child: %v", err)
	}
	if same, err := ns.CheckNetNS(path); same || err != nil {
		t.Errorf("%v, %v", same, err)
	}
	stdin.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
