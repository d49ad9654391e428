package cell_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// fewDescriptors is the name under which the test starts itself with a limit of open files, its argument.
const fewDescriptors = "cell-test-few-descriptors"

// runFewDescriptors runs 64 calls at the same time in a cell with ten containers. It prints the recording.
func runFewDescriptors() int {
	err := func() error {
		limit, err := strconv.ParseUint(os.Args[1], 10, 64)
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
		s := &script.Scenario{Name: "many"}
		for i := range 10 {
			s.Steps = append(s.Steps, script.Step{Container: &script.Container{Name: fmt.Sprint("c", i)}, Quiet: true})
		}
		s.Programs = []string{"/bin/true"}
		var calls []script.Call
		for i := range 64 {
			calls = append(calls, script.Call{Name: fmt.Sprint("call", i), Path: script.Plugins + "/true"})
		}
		s.Steps = append(s.Steps, script.Step{Calls: calls})
		r, err := cell.Run(context.Background(), s)
		if err != nil {
			return err
		}
		return r.Encode(os.Stdout)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestFewDescriptors runs calls with the limit of open files that the kernel gives a host without systemd,
// and with one that is too low for the judge itself, for which it must not blame the plugin.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for limit, broken := range map[int]string{4096: "", 128: "too many open files"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.Stderr = []string{fewDescriptors, strconv.Itoa(limit)}, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		r, err := script.Decode(strings.NewReader(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		if broken == "" != (r.Broken == "") || !strings.Contains(r.Broken, broken) {
			t.Errorf("limit %d: the scenario is broken: %q, want %q", limit, r.Broken, broken)
		}
		for _, e := range r.Events {
			for _, c := range e.Calls {
				if c.Failed != "" {
					t.Errorf("limit %d: %s does not start: %s", limit, c.Name, c.Failed)
				}
			}
		}
	}
}
