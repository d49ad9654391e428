//go:build unix

package invoke

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is a plugin with the processes that are stopped with it.
type group struct {
	cmd    *exec.Cmd
	joined bool
}

// newGroup prepares a command to run in its own process group, or in this process's group if the
// call is joined.
func newGroup(cmd *exec.Cmd, c Call) group {
	cmd.ExtraFiles = c.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Joined}
	return group{cmd, c.Joined}
}

func (g group) terminate() error { return unix.Kill(g.target(), unix.SIGTERM) }

func (g group) kill() { _ = unix.Kill(g.target(), unix.SIGKILL) }

// target returns the process or process group for kill(2).
func (g group) target() int {
	if g.joined {
		return g.cmd.Process.Pid
	}
	return -g.cmd.Process.Pid
}

// maxPipe is the number of bytes that a pipe can hold (pipe(7), /proc/sys/fs/pipe-max-size).
const maxPipe = 1 << 20

// collect starts cmd and copies its output. drain, called after the process has ended, waits until
// all output is copied. It waits at most drainFor for a descendant that keeps a stream open, but
// never loses output of the plugin itself, however late the copying is.
func collect(cmd *exec.Cmd, stdout, stderr io.Writer) (drain func(), err error) {
	var streams []*stream
	closeAll := func() {
		for _, s := range streams {
			s.r.Close()
			s.w.Close()
		}
	}
	for _, to := range []io.Writer{stdout, stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, err
		}
		streams = append(streams, &stream{r: r, w: w, to: to, done: make(chan struct{})})
	}
	cmd.Stdout, cmd.Stderr = streams[0].w, streams[1].w
	if err := cmd.Start(); err != nil {
		closeAll()
		return nil, err
	}
	for _, s := range streams {
		s.w.Close()
		go s.copy()
	}
	return func() {
		end := time.Now().Add(drainFor)
		for _, s := range streams {
			s.drain(end)
		}
	}, nil
}

// stream is one output of a process on its way to a writer.
type stream struct {
	r, w *os.File
	to   io.Writer
	done chan struct{}
}

// copy returns at the end of the stream, at the deadline that drain sets, or when the writer fails.
func (s *stream) copy() {
	defer close(s.done)
	_, err := io.Copy(s.to, s.r)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		s.r.Close()
	}
}

func (s *stream) drain(end time.Time) {
	if err := s.r.SetReadDeadline(end); err != nil { // closed, because all output is copied
		<-s.done
		return
	}
	<-s.done
	defer s.r.Close()
	if s.r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	conn, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	_ = conn.Read(func(fd uintptr) bool {
		for range maxPipe / len(buf) { // a descendant may write forever
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil {
				return true
			}
			if _, err := s.to.Write(buf[:n]); err != nil {
				return true
			}
		}
		return true
	})
}
