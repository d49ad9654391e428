package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tracer is a buffer of the kernel's tracer for the system calls of this process. Tracing adds
// about a microsecond to each call.
type tracer struct {
	dir   string        // of the buffer
	floor time.Duration // the duration of an empty call, mostly tracing
}

// newTracer returns an error if the kernel lacks tracefs.
func newTracer(work string) (*tracer, error) {
	root := filepath.Join(work, "tracefs")
	if err := os.Mkdir(root, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	t := &tracer{dir: filepath.Join(root, "instances", "tenon-bench-"+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("buffer for tracing: %w", err)
	}
	for _, setting := range [][2]string{
		{"trace_clock", "mono"}, {"buffer_size_kb", "4096"}, {"options/event-fork", "1"},
		{"events/raw_syscalls/sys_enter/enable", "1"}, {"events/raw_syscalls/sys_exit/enable", "1"},
	} {
		if err := t.set(setting[0], setting[1]); err != nil {
			t.close()
			return nil, err
		}
	}
	calls, err := t.calls(func() error {
		for range 1000 {
			unix.Getppid()
		}
		return nil
	})
	if err != nil {
		t.close()
		return nil, err
	}
	var took []time.Duration
	for _, c := range calls {
		if c.number == unix.SYS_GETPPID {
			took = append(took, c.took)
		}
	}
	if len(took) != 1000 {
		t.close()
		return nil, fmt.Errorf("%d of 1000 calls were traced", len(took))
	}
	t.floor = mean(took)
	return t, nil
}

func mean(samples []time.Duration) time.Duration {
	var sum time.Duration
	for _, s := range samples {
		sum += s
	}
	return sum / time.Duration(max(1, len(samples)))
}

func (t *tracer) close() { _ = os.Remove(t.dir) } // removes the buffer

func (t *tracer) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(t.dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// systemCall is a call that has returned.
type systemCall struct {
	number int
	took   time.Duration
}

// calls returns the system calls of all threads of this process while f runs.
func (t *tracer) calls(f func() error) ([]systemCall, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var ids bytes.Buffer
	for _, thread := range threads {
		fmt.Fprintln(&ids, thread.Name())
	}
	for _, setting := range [][2]string{{"set_event_pid", ids.String()}, {"trace", ""}, {"tracing_on", "1"}} {
		if err := t.set(setting[0], setting[1]); err != nil {
			return nil, err
		}
	}
	err = f()
	if off := t.set("tracing_on", "0"); err == nil {
		err = off
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(t.dir, "trace"))
	if err != nil {
		return nil, err
	}
	return parseTrace(text)
}

// traceLine is a line of the trace: "bench-4711  [001] .....  12.345678: sys_enter: NR 46 (…)".
var traceLine = regexp.MustCompile(`-(\d+) +\[\d+\] \S+ +(\d+)\.(\d{6}): sys_(enter|exit): NR (-?\d+)`)

func parseTrace(text []byte) ([]systemCall, error) {
	type entry struct {
		number int
		at     time.Duration
	}
	entered := map[string]entry{} // by thread
	var calls []systemCall
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		m := traceLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := time.ParseDuration(m[2] + "." + m[3] + "s")
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(m[5])
		if err != nil {
			return nil, err
		}
		if m[4] == "enter" {
			entered[m[1]] = entry{number, at}
		} else if e, ok := entered[m[1]]; ok && e.number == number {
			delete(entered, m[1])
			calls = append(calls, systemCall{number, at - e.at})
		}
	}
	return calls, lines.Err()
}

// ofProgram are calls by which the Go runtime manages the process and its waiting.
var ofProgram = []int{
	unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_MMAP, unix.SYS_MUNMAP,
	unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_TGKILL,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPPID, unix.SYS_WAIT4, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
}

// ofNetwork are calls on sockets and namespaces: in this program netlink.
var ofNetwork = []int{
	unix.SYS_SOCKET, unix.SYS_BIND, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_SENDTO, unix.SYS_SENDMSG,
	unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_SETNS, unix.SYS_IOCTL,
}

// kernelTime returns the time that the kernel spent in these calls, and in the network calls among
// them.
func (t *tracer) kernelTime(calls []systemCall) (all, network time.Duration, count int) {
	for _, c := range calls {
		if slices.Contains(ofProgram, c.number) {
			continue
		}
		took := max(0, c.took-t.floor)
		count++
		all += took
		if slices.Contains(ofNetwork, c.number) {
			network += took
		}
	}
	return all, network, count
}
