package testnet

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WithoutNFT runs a command in which the creation of each nfnetlink socket fails with an errno, as
// if the kernel had no nfnetlink (EPROTONOSUPPORT) or a filter of system calls forbade it (EPERM).
func WithoutNFT(n *Namespace, cmd *exec.Cmd, errno unix.Errno) error {
	return n.Run(func() error { // on a separate thread, which ends with it
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		filter := refuseSockets(errno)
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
			uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
		return cmd.Run() // the child is forked from this thread and inherits the filter
	})
}

// refuseSockets returns a filter (seccomp(2)) of socket(AF_NETLINK, …, NETLINK_NETFILTER).
func refuseSockets(errno unix.Errno) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	argument := func(i uint32) uint32 { // the lower half of an argument in struct seccomp_data
		offset := 16 + 8*i
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			offset += 4
		}
		return offset
	}
	return []unix.SockFilter{
		{Code: load}, // the number of the call
		{Code: equal, K: unix.SYS_SOCKET, Jf: 5},
		{Code: load, K: argument(0)},
		{Code: equal, K: unix.AF_NETLINK, Jf: 3},
		{Code: load, K: argument(2)},
		{Code: equal, K: unix.NETLINK_NETFILTER, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
}
