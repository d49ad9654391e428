package invoke

import (
	"bytes"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// slow delays each write, as on an overloaded host.
type slow struct{ bytes.Buffer }

func (w *slow) Write(b []byte) (int, error) {
	time.Sleep(drainFor + drainFor/2)
	return w.Buffer.Write(b)
}

// A late reader loses no output of a plugin that has exited: 200 concurrent ADDs on two processors
// once lost results.
func TestLateReaderLosesNothing(t *testing.T) {
	t.Parallel()
	const size = 150_000 // more than a pipe holds, so that the process ends with the pipe full
	cmd := exec.Command("head", "-c", "150000", "/dev/zero")
	var out slow
	drain, err := collect(cmd, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	drain()
	if out.Len() != size {
		t.Errorf("read %d bytes of %d", out.Len(), size)
	}
}

// A descendant that holds the streams open does not delay the call.
func TestDescendantIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	drain, err := collect(cmd, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	start := time.Now()
	drain()
	if took := time.Since(start); took > testnet.Patience {
		t.Errorf("waited %v", took)
	}
	if out.String() != "done\n" {
		t.Errorf("read %q", out.String())
	}
}
