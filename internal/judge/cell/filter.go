package cell

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launcher starts programs of the subject on a thread of its own, which has a filter of system calls.
// Programs inherit it.
type launcher chan func()

func newLauncher() (launcher, error) {
	l, ready := make(launcher), make(chan error)
	go func() {
		runtime.LockOSThread() // the thread has the filter for ever
		ready <- confine()
		for start := range l {
			start()
		}
	}()
	return l, <-ready
}

func (l launcher) start(cmd *exec.Cmd) error {
	started := make(chan error)
	l <- func() { started <- cmd.Start() }
	return <-started
}

// confine applies [filter] to the programs that this thread starts, and takes from them the capability
// to reach the memory and the descriptors of other processes, above all those of the judge, see [hide].
func confine() error {
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0); err != nil {
		return fmt.Errorf("drop CAP_SYS_PTRACE: %w", err)
	}
	return filter()
}

// hide denies processes without CAP_SYS_PTRACE to open the descriptors of this process and to write
// its memory, also those of the same user (ptrace(2)). Otherwise the subject could write the recording.
func hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// Constants of the kernel that package unix lacks.
const (
	freeze   = 0xc0045877 // FIFREEZE: stops all writers of a file system
	thaw     = 0xc0045878 // FITHAW
	trim     = 0xc0185879 // FITRIM
	shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
)

// architectures are the values of seccomp(2) for the system calls of this program.
var architectures = map[string]uint32{
	"386": unix.AUDIT_ARCH_I386, "amd64": unix.AUDIT_ARCH_X86_64, "arm": unix.AUDIT_ARCH_ARM,
	"arm64": unix.AUDIT_ARCH_AARCH64, "loong64": unix.AUDIT_ARCH_LOONGARCH64,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "riscv64": unix.AUDIT_ARCH_RISCV64, "s390x": unix.AUDIT_ARCH_S390X,
}

// filter denies this thread and its children the system calls with which root leaves the cell in spite
// of its namespaces: mounting a new file system, for example devtmpfs or proc, and making a read-only
// mount writable. Bind mounts and unmounting are allowed; [supervise] decides
// about other mounts. Programs for another architecture get ENOSYS from all system calls.
func filter() error {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return fmt.Errorf("filter of system calls: architecture %s", runtime.GOARCH)
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		bits    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer  = unix.BPF_RET | unix.BPF_K
		denied  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		absent  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

		number, architecture = 0, 4 // offsets in struct seccomp_data
	)
	argument := func(n int) unix.SockFilter { // its lower half
		offset := 16 + 8*n
		if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 0 { // big-endian
			offset += 4
		}
		return unix.SockFilter{Code: load, K: uint32(offset)}
	}
	program := []unix.SockFilter{
		{Code: load, K: architecture},
		{Code: equal, K: arch, Jt: 1},
		{Code: answer, K: absent},
		{Code: load, K: number},
	}
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		program = append(program, unix.SockFilter{Code: atLeast, K: x32, Jf: 1}, unix.SockFilter{Code: answer, K: absent})
	}
	// Callers use mount(2) if these are absent.
	for _, n := range []uint32{unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR} {
		program = append(program, unix.SockFilter{Code: equal, K: n, Jf: 1}, unix.SockFilter{Code: answer, K: absent})
	}
	for _, n := range []uint32{unix.SYS_FANOTIFY_INIT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL,
		unix.SYS_PERF_EVENT_OPEN} {
		program = append(program, unix.SockFilter{Code: equal, K: n, Jf: 1}, unix.SockFilter{Code: answer, K: denied})
	}
	program = slices.Concat(program, []unix.SockFilter{
		{Code: equal, K: unix.SYS_MOUNT, Jf: 6},
		argument(3), // flags
		{Code: bits, K: unix.MS_REMOUNT, Jt: 2},
		{Code: bits, K: unix.MS_BIND | unix.MS_MOVE | unix.MS_PRIVATE | unix.MS_SHARED | unix.MS_SLAVE | unix.MS_UNBINDABLE, Jf: 2},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: denied},
		{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: equal, K: unix.SYS_IOCTL, Jf: 6},
		argument(1), // command
		{Code: equal, K: freeze, Jt: 3},
		{Code: equal, K: thaw, Jt: 2},
		{Code: equal, K: trim, Jt: 1},
		{Code: equal, K: shutdown, Jf: 1},
		{Code: answer, K: denied},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	})
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filter of system calls: %w", errno)
	}
	go supervise(int(fd))
	return nil
}
