package invoke

import (
	"io"
	"os/exec"
)

// group is a plugin without its descendants: Windows has no process groups that can be signaled.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd, _ Call) group { return group{cmd} }

func (g group) terminate() error { return g.cmd.Process.Kill() }

func (g group) kill() { _ = g.cmd.Process.Kill() }

// collect starts cmd, which copies its output itself until [exec.Cmd.Wait] returns.
func collect(cmd *exec.Cmd, stdout, stderr io.Writer) (drain func(), err error) {
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return func() {}, cmd.Start()
}
