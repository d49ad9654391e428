package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/mounts"
)

// The limits of a cell. 64 concurrent calls of a plugin in Go need about 600 tasks.
const (
	maxProcesses = 2000 // for the monitor, which then ends all of them
	maxTasks     = 8192 // for the kernel: processes and threads
	maxMemory    = 4 << 30
)

// memoryLimit returns the memory in bytes that the processes of a cell may have: half of the machine's,
// at most maxMemory.
func memoryLimit() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("sysinfo: %w", err)
	}
	const page = 64 << 10 // the kernel rounds to its pages
	return min(uint64(info.Totalram)*uint64(info.Unit)/2, maxMemory) / page * page, nil
}

// newGroup creates a control group with the limits, below the nearest one that allows it. The error
// says why there is none.
func newGroup() (dir string, err error) {
	memory, err := memoryLimit()
	if err != nil {
		return "", err
	}
	limits := map[string]string{
		"pids.max": strconv.Itoa(maxTasks), "memory.max": strconv.FormatUint(memory, 10),
	}
	for _, parent := range groups() {
		b, err := os.ReadFile(parent + "/cgroup.subtree_control")
		controllers := strings.Fields(string(b))
		if err != nil || !slices.Contains(controllers, "pids") || !slices.Contains(controllers, "memory") {
			continue
		}
		dir, err := os.MkdirTemp(parent, "tenon-conform-")
		if err != nil {
			continue
		}
		for file, value := range limits {
			if err := os.WriteFile(dir+"/"+file, []byte(value), 0o600); err != nil {
				return "", errors.Join(err, os.Remove(dir))
			}
		}
		return dir, nil
	}
	return "", errors.New("no writable control group (version 2) has the controllers pids and memory")
}

// groups returns the directory of the control group of this process and those above it.
func groups() (list []string) {
	all, err := mounts.Below("/sys/fs/cgroup")
	at := slices.IndexFunc(all, func(m mounts.Mount) bool { return m.Type == "cgroup2" })
	if err != nil || at < 0 {
		return nil
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			for ; own != "/" && own != "."; own = path.Dir(own) {
				list = append(list, all[at].Path+own)
			}
			return append(list, all[at].Path)
		}
	}
	return nil
}

// limitResources sets resource limits of this process, which the processes of the cell inherit.
func limitResources() error {
	// A core dump of one byte does not start the program in kernel.core_pattern, unlike 0 (core(5)).
	limits := map[int]uint64{unix.RLIMIT_CORE: 1}
	if owner, err := inUserNamespace(); err != nil {
		return err
	} else if owner {
		limits[unix.RLIMIT_NPROC] = maxTasks // does not concern root
	}
	for resource, value := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		now.Cur = min(value, now.Max)
		now.Max = now.Cur
		if err := unix.Setrlimit(resource, &now); err != nil {
			return err
		}
	}
	return nil
}

// inUserNamespace reports whether this process is in another user namespace than the first one.
func inUserNamespace() (bool, error) {
	b, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(b))
	return len(fields) != 3 || fields[2] != "4294967295", err
}

// limitProcesses limits the processes of the cell with a sysctl. Before Linux 6.14, it belongs to the
// host, and stays as it is.
func (w *world) limitProcesses(proc string) {
	if kernelBefore(6, 14) {
		return
	}
	if err := os.WriteFile(proc+"/sys/kernel/pid_max", []byte(strconv.Itoa(maxTasks)), 0); err != nil {
		w.unlimited = append(w.unlimited, fmt.Sprintf("no limit for the number of processes: %v", err))
	}
}

func kernelBefore(major, minor int) bool {
	var u unix.Utsname
	var a, b int
	if unix.Uname(&u) != nil {
		return true
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		return true
	}
	return cmp.Or(cmp.Compare(a, major), cmp.Compare(b, minor)) < 0
}

// monitor ends all processes of the cell when there are too many, until stop is called. stop reports
// whether it did.
func monitor() (stop func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if len(processIDs()) > maxProcesses {
					ended.Store(true)
					_ = unix.Kill(-1, unix.SIGKILL) // all except this one
				}
			}
		}
	}()
	return func() bool { cancel(); <-done; return ended.Load() }
}
