package tracer

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopAtWatched makes a newly started tracee, and all its descendants, stop only at the watched
// calls (seccomp(2)). Stops at each of several thousand calls, at entry and return, would take most
// of the time of a traced program.
func stopAtWatched(pid int) error {
	var before unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &before); err != nil {
		return err
	}
	// Put struct sock_fprog, followed by the program, on the stack below the used part.
	program := filter()
	at := (before.Rsp - 4096) &^ 15
	b := binary.NativeEndian.AppendUint64(nil, uint64(len(program)))
	b = binary.NativeEndian.AppendUint64(b, at+16)
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&program[0])), len(program)*unix.SizeofSockFilter)...)
	if _, err := unix.PtracePokeData(pid, uintptr(at), b); err != nil {
		return err
	}
	code := make([]byte, 2)
	if _, err := unix.PtracePeekText(pid, uintptr(before.Rip), code); err != nil {
		return err
	}
	// Write a syscall instruction.
	if _, err := unix.PtracePokeText(pid, uintptr(before.Rip), []byte{0x0f, 0x05}); err != nil {
		return err
	}
	call := before
	call.Rax, call.Rdi, call.Rsi, call.Rdx = unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, at
	call.Orig_rax = ^uint64(0) // no call in progress
	if err := unix.PtraceSetRegs(pid, &call); err != nil {
		return err
	}
	for range 2 { // entry and return
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			return err
		}
		var status unix.WaitStatus
		if _, err := wait(pid, &status); err != nil {
			return err
		}
	}
	if err := unix.PtraceGetRegs(pid, &call); err != nil {
		return err
	}
	if call.Rax != 0 {
		return unix.Errno(-call.Rax)
	}
	if _, err := unix.PtracePokeText(pid, uintptr(before.Rip), code); err != nil {
		return err
	}
	return unix.PtraceSetRegs(pid, &before)
}

// filter returns the program for calls of this architecture. It compares the number of the call,
// the first member of struct seccomp_data.
func filter() []unix.SockFilter {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for i, number := range watched {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number,
				Jt: uint8(len(watched) - i)})
	}
	return append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
}
