package cell

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests and structures of seccomp_unotify(2), which package unix lacks.
const (
	receiveRequest = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	sendResponse   = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

type notification struct {
	id           uint64
	pid, flags   uint32
	number       int32
	architecture uint32
	instruction  uint64
	arguments    [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// supervise answers the calls of mount(2) that the filter does not decide, until no process has the
// filter. Programs of the subject must not mount file systems, but may run ip(8), which mounts /sys for
// another network namespace. This process then mounts it in their place, read-only; the kernel does
// not look at the arguments of the program again.
func supervise(listener int) {
	defer unix.Close(listener)
	for {
		events := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(events, -1); err != nil && err != unix.EINTR {
			return
		}
		switch {
		case events[0].Revents&unix.POLLIN != 0:
			decide(listener)
		case events[0].Revents != 0:
			return
		}
	}
}

// decide answers one call.
func decide(listener int) {
	var n notification
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), receiveRequest, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return // the program has been killed
	}
	r := response{id: n.id, errno: -int32(mountFor(n))}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), sendResponse, uintptr(unsafe.Pointer(&r)))
}

func mountFor(n notification) unix.Errno {
	const target, kind = 1, 2 // arguments of mount(2)
	mem, err := os.Open("/proc/" + strconv.Itoa(int(n.pid)) + "/mem")
	if err != nil {
		return unix.EPERM
	}
	defer mem.Close()
	for i, want := range map[int]string{target: "/sys\x00", kind: "sysfs\x00"} {
		got := make([]byte, len(want))
		if _, err := mem.ReadAt(got, int64(n.arguments[i])); err != nil || !bytes.Equal(got, []byte(want)) {
			return unix.EPERM
		}
	}
	err = exec.Command("nsenter", "--target", strconv.Itoa(int(n.pid)), "--mount", "--net",
		"mount", "-t", "sysfs", "-o", "ro", "conform", "/sys").Run()
	if err != nil {
		return unix.EPERM
	}
	return 0
}
