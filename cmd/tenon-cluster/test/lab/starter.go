package lab

import (
	"os/exec"
	"runtime"
	"syscall"
)

// starter starts processes on one thread that lives as long as the starter, because the kernel
// kills a process with Pdeathsig when the thread that started it ends. So no member outlives the
// tests, even if they end by a panic or a signal.
type starter struct {
	commands chan *exec.Cmd
	errors   chan error
}

func newStarter() *starter {
	s := &starter{make(chan *exec.Cmd), make(chan error)}
	go func() {
		runtime.LockOSThread()
		for cmd := range s.commands {
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
			s.errors <- cmd.Start()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	s.commands <- cmd
	return <-s.errors
}

// end kills the processes that still run.
func (s *starter) end() { close(s.commands) }
