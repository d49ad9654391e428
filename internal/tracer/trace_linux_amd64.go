package tracer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracer counts the changes of a program and makes one of them fail.
type tracer struct {
	fault   Fault
	run     Run
	pid     int            // of the first process
	netlink map[string]int // "socket:[inode]" → netlink protocol
	threads map[int]*thread
	ended   map[int]bool // tracees that have ended
	created bool         // the last message requested or changed a link
}

// thread is the state of a tracee between the entry of a call and its return.
type thread struct {
	entry  syscallEntry
	errno  unix.Errno // result to report instead of the real one
	leaves bool       // the tracer waits for the return
	begun  bool       // the first stop has occurred
}

// syscallEntry is a call with its arguments.
type syscallEntry struct {
	number uint64
	args   [6]uint64
}

// Trace runs a program, with all processes it starts, to its end under a fault. The caller must
// have locked its thread, because ptrace(2) binds tracees to the thread that started them. The
// program runs in the namespace of that thread. Input and output must fit into a pipe.
func Trace(cmd *exec.Cmd, input []byte, f Fault) (*Run, error) {
	t := &tracer{fault: f, netlink: map[string]int{}, threads: map[int]*thread{},
		ended: map[int]bool{}}
	var ends [3][2]*os.File // of standard input, output and error: to read, to write
	defer func() {
		for _, pipe := range ends {
			pipe[0].Close()
			pipe[1].Close()
		}
	}()
	for i := range ends {
		var err error
		if ends[i][0], ends[i][1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	stdin, stdout, stderr := ends[0], ends[1], ends[2]
	if _, err := stdin[1].Write(input); err != nil {
		return nil, err
	}
	stdin[1].Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin[0], stdout[1], stderr[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := t.follow(cmd.Process.Pid); err != nil {
		return nil, err
	}
	if err := cmd.Process.Release(); err != nil {
		return nil, err
	}
	stdout[1].Close()
	stderr[1].Close()
	var errs [2]error
	t.run.Stdout, errs[0] = io.ReadAll(stdout[0])
	t.run.Stderr, errs[1] = io.ReadAll(stderr[0])
	return &t.run, errors.Join(errs[:]...)
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL

// follow resumes the tracees from stop to stop until the last has ended. It must ignore other
// children of the thread, and children for which other goroutines wait; __WNOTHREAD excludes the
// latter.
func (t *tracer) follow(pid int) error {
	var status unix.WaitStatus
	if _, err := wait(pid, &status); err != nil {
		return fmt.Errorf("wait for process %d to start: %w", pid, err)
	}
	if err := unix.PtraceSetOptions(pid, traceOptions); err != nil {
		return fmt.Errorf("set ptrace options: %w", err)
	}
	if err := stopAtWatched(pid); err != nil {
		return fmt.Errorf("filter system calls of process %d: %w", pid, err)
	}
	t.pid = pid
	t.threads[pid] = &thread{begun: true}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return fmt.Errorf("resume process %d: %w", pid, err)
	}
	for len(t.threads) > 0 {
		tid, err := wait(-1, &status)
		if err != nil {
			return fmt.Errorf("wait for a tracee: %w", err)
		}
		if status.Exited() || status.Signaled() {
			delete(t.threads, tid)
			t.ended[tid] = true
			if tid == pid {
				t.run.Killed, t.run.Code = status.Signaled(), status.ExitStatus()
			}
			continue
		}
		signal, err := t.stopped(tid, status)
		if err == nil && t.threads[tid].leaves {
			err = unix.PtraceSyscall(tid, signal)
		} else if err == nil {
			err = unix.PtraceCont(tid, signal)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // killed meanwhile
			return fmt.Errorf("trace thread %d: %w", tid, err)
		}
	}
	return nil
}

func wait(pid int, status *unix.WaitStatus) (int, error) {
	for {
		tid, err := unix.Wait4(pid, status, unix.WALL|unix.WNOTHREAD, nil)
		if err != unix.EINTR {
			return tid, err
		}
	}
}

// stopped handles a stop of a tracee and returns the signal to resume it with.
func (t *tracer) stopped(tid int, status unix.WaitStatus) (signal int, err error) {
	first := t.add(tid)
	switch stop := status.StopSignal(); {
	case stop == unix.SIGTRAP|0x80, stop == unix.SIGTRAP &&
		status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return 0, t.syscall(tid, t.threads[tid])
	case stop == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_EXEC:
		former, err := unix.PtraceGetEventMsg(tid)
		if err == nil && int(former) != tid { // the thread now has the identifier of the process
			delete(t.threads, int(former))
		}
		return 0, err
	case stop == unix.SIGTRAP && status.TrapCause() > 0: // clone, fork, vfork
		child, err := unix.PtraceGetEventMsg(tid)
		if err == nil && !t.ended[int(child)] && t.threads[int(child)] == nil {
			t.threads[int(child)] = &thread{}
		}
		return 0, err
	case stop == unix.SIGSTOP && first:
		return 0, nil
	default:
		return int(stop), nil
	}
}

// add registers a tracee at a stop and reports whether it is the tracee's first stop. That stop can
// precede the event of the tracee that started it.
func (t *tracer) add(tid int) (first bool) {
	th := t.threads[tid]
	if th == nil {
		th = &thread{}
		t.threads[tid] = th
	}
	first, th.begun = !th.begun, true
	return first
}

// syscallInfo is struct ptrace_syscall_info (ptrace(2)).
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	_    uint32
	_, _ uint64
	data [7]uint64 // entry, seccomp: number and arguments; exit: result
}

func (t *tracer) syscall(tid int, th *thread) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_SECCOMP:
		th.entry = syscallEntry{info.data[0], [6]uint64(info.data[1:])}
		err := t.enter(tid, th)
		th.leaves = th.errno != 0 || th.entry.number == unix.SYS_SOCKET
		return err
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		th.leaves = false
		return t.leave(tid, th, int64(info.data[0]))
	}
	return nil
}

func (t *tracer) enter(tid int, th *thread) error {
	c, ok := t.classify(tid, th.entry)
	if !ok || t.fault.First && !t.inFirst(tid) {
		return nil
	}
	n := len(t.run.Changes)
	t.run.Changes = append(t.run.Changes, c)
	if n != t.fault.N || t.fault.Effect == None {
		return nil
	}
	t.run.Hit = true
	switch t.fault.Effect {
	case Kill:
		// A signal to any thread kills its process, and a call that has not been executed never is.
		return unix.Kill(tid, unix.SIGKILL)
	case Terminate:
		return unix.Kill(tid, unix.SIGTERM)
	case Fail:
		th.errno = c.Errno
		return setRegisters(tid, func(r *unix.PtraceRegs) { r.Orig_rax = ^uint64(0) })
	case Lose:
		th.errno = c.Errno
	}
	return nil
}

// inFirst reports whether a thread belongs to the first process.
func (t *tracer) inFirst(tid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", t.pid, tid))
	return err == nil
}

func (t *tracer) leave(tid int, th *thread, result int64) error {
	if th.entry.number == unix.SYS_SOCKET && th.entry.args[0] == unix.AF_NETLINK && result >= 0 {
		t.netlink[descriptor(tid, int(result))] = int(th.entry.args[2])
	}
	if th.errno == 0 {
		return nil
	}
	errno := th.errno
	th.errno = 0
	return setRegisters(tid, func(r *unix.PtraceRegs) { r.Rax = -uint64(errno) })
}

func setRegisters(tid int, set func(*unix.PtraceRegs)) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	set(&r)
	return unix.PtraceSetRegs(tid, &r)
}

// traceable returns an error if processes cannot be traced here: a container or the kernel may
// forbid it. It traces true(1), which changes nothing.
func traceable() error {
	path, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() { // the thread ends with the locked goroutine
		runtime.LockOSThread()
		_, err := Trace(exec.Command(path), nil, Fault{})
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("processes cannot be traced here: %w", err)
	}
	return nil
}
