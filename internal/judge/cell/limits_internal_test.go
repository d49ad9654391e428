package cell

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestControlGroup limits the memory and the number of processes of a cell with a control group.
func TestControlGroup(t *testing.T) {
	testnet.Require(t, testnet.Root, testnet.OwnMachine)
	const top, parent = "/sys/fs/cgroup", "/sys/fs/cgroup/judge"
	if err := unix.Mount("cgroup2", top, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	if err := os.MkdirAll(parent+"/self", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range [][2]string{
		{top + "/cgroup.subtree_control", "+pids +memory"},
		{parent + "/cgroup.subtree_control", "+pids +memory"},
		{parent + "/self/cgroup.procs", strconv.Itoa(os.Getpid())},
	} {
		if err := os.WriteFile(file[0], []byte(file[1]), 0); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("limits", func(t *testing.T) {
		dir, err := newGroup()
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		memory, err := memoryLimit()
		if err != nil || memory < 64<<20 || memory > maxMemory || memory%4096 != 0 {
			t.Errorf("limit of %d bytes, %v", memory, err)
		}
		for file, want := range map[string]string{
			"pids.max": strconv.Itoa(maxTasks), "memory.max": strconv.FormatUint(memory, 10),
		} {
			got, err := os.ReadFile(dir + "/" + file)
			if strings.TrimSpace(string(got)) != want {
				t.Errorf("%s: %s, %v, expected %s", file, got, err, want)
			}
		}
	})

	t.Run("greedy plugin", func(t *testing.T) {
		own, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(t.TempDir(), Greedy)
		if err := os.Symlink(own, program); err != nil {
			t.Fatal(err)
		}
		call := func(name string) script.Step {
			return script.Step{Calls: []script.Call{{Name: name, Path: script.Plugins + "/" + name}}}
		}
		r, err := Run(t.Context(), &script.Scenario{Name: "greedy", Programs: []string{program},
			Files: []script.File{script.RecorderFile("probe")},
			Steps: []script.Step{call(Greedy), call("probe")}})
		if err != nil || r.Broken != "" || len(r.Skipped) > 0 {
			t.Fatalf("%v, %+v", err, r)
		}
		if greedy, _ := r.Call(Greedy); greedy.Signal != int(unix.SIGKILL) {
			t.Errorf("the call ended with %+v", greedy)
		}
		if after, _ := r.Call("probe"); after.Status != 0 || len(after.Recorded) != 1 {
			t.Errorf("the call after it: %+v", after)
		}
		if n := killed(t, parent); n == 0 {
			t.Error("the limit of the control group killed no process")
		}
		left, err := os.ReadDir(parent)
		for _, e := range left {
			if strings.HasPrefix(e.Name(), "tenon-conform-") {
				t.Errorf("the control group %s is left", e.Name())
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// Greedy is the name under which the test binary takes memory until it is killed.
const Greedy = "greedy"

// RunGreedy writes to an anonymous file, which is faster than to touch pages.
func RunGreedy() int {
	fd, err := unix.MemfdCreate(Greedy, 0)
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<20))
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// killed returns the number of processes below a control group that the kernel killed for its limit.
func killed(t *testing.T, dir string) (n int) {
	t.Helper()
	events, err := os.ReadFile(dir + "/memory.events")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(events)) {
		fmt.Sscanf(line, "oom_kill %d", &n)
	}
	return n
}
