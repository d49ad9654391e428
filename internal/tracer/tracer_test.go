package tracer_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestEffects runs mkdir with three directories, which makes three changes, and checks the effect
// of each fault of the second.
func TestEffects(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root, tracer.Supported)
	for _, row := range []struct {
		effect tracer.Effect
		made   []string
		killed bool
		code   int
	}{
		{tracer.None, []string{"a", "b", "c"}, false, 0},
		{tracer.Kill, []string{"a"}, true, -1},
		{tracer.Terminate, []string{"a", "b"}, true, -1},
		{tracer.Fail, []string{"a", "c"}, false, 1},
		{tracer.Lose, []string{"a", "b", "c"}, false, 1},
	} {
		t.Run(row.effect.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command("mkdir", "a", "b", "c")
			cmd.Dir = dir
			var got *tracer.Run
			var err error
			testnet.New(t).Host.Do(func() {
				got,
					err = tracer.Trace(cmd, nil, tracer.Fault{Effect: row.effect, N: 1})
			})
			if err != nil {
				t.Fatal(err)
			}
			var made []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				made = append(made, e.Name())
			}
			want := fmt.Sprint(row.made, row.killed, row.code, row.effect != tracer.None)
			if diff := cmp.Diff(want, fmt.Sprint(made, got.Killed, got.Code, got.Hit)); diff != "" {
				t.Errorf("directories, killed, exit status, hit (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherChildren traces a program from a thread that has started another one, which is not
// traced and continues.
func TestOtherChildren(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root, tracer.Supported)
	script := `mkdir a; (mkdir b; mkdir c) & wait`
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		other := exec.Command("sleep", "1000")
		if err := other.Start(); err != nil {
			done <- err
			return
		}
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = t.TempDir()
		run, err := tracer.Trace(cmd, nil, tracer.Fault{})
		if err == nil && (run.Code != 0 || len(run.Changes) < 3) {
			err = fmt.Errorf("exit status %d, changes %v", run.Code, run.Changes)
		}
		kill := other.Process.Kill()
		if kill == nil {
			_ = other.Wait()
		}
		done <- errors.Join(err, kill)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testnet.Patience):
		t.Fatal("the tracer waits for a process that it does not trace")
	}
}
