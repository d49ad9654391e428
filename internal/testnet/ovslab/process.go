package ovslab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// Process is a daemon of a switch.
type Process struct {
	sw   *Switch
	name string
	args []string
	cmd  *exec.Cmd
}

// process returns a daemon that does not run yet and is killed at the end of the test.
func (s *Switch) process(name string, args ...string) *Process {
	p := &Process{sw: s, name: name, args: append(args, "--no-chdir", "-vsyslog:off")}
	s.t.Cleanup(func() {
		p.Kill()
		if s.t.Failed() {
			s.t.Logf("%s in %s:\n%s", p.name, s.Host.Name, p.Log())
		}
	})
	return p
}

// Start starts the daemon, with the database and the sockets of an earlier one, and waits until it
// answers.
func (p *Process) Start() {
	t := p.sw.t
	t.Helper()
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.name, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.sw.env(), log, log
	if err := p.sw.Host.Run(cmd.Start); err != nil {
		t.Fatal(err)
	}
	p.cmd = cmd
	testnet.Eventually(t, func() error {
		if _, err := p.sw.Try("ovs-appctl", timeout, "-t", p.control(), "version"); err != nil {
			return fmt.Errorf("%w\n%s", err, p.Log())
		}
		return nil
	})
}

// control returns the path of the control socket.
func (p *Process) control() string {
	for _, arg := range p.args {
		if path, ok := strings.CutPrefix(arg, "--unixctl="); ok {
			return path
		}
	}
	return ""
}

// Stop ends the daemon as a service manager does, with SIGTERM, and waits for its end.
// ovs-vswitchd keeps the state of the kernel datapath.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the daemon with SIGKILL and waits for its end. It does nothing if the daemon does not
// run.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(signal syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Pause stops the daemon's processing until Resume: its sockets accept connections, but nothing
// answers.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(signal syscall.Signal) {
	p.sw.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.sw.t.Fatalf("%s: %v", p.name, err)
	}
}

// Log returns the messages of the daemon, also of earlier ones.
func (p *Process) Log() string {
	b, _ := os.ReadFile(p.logPath())
	return string(b)
}

func (p *Process) logPath() string { return filepath.Join(p.sw.Dir, p.name+".log") }
