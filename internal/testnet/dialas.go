package testnet

import (
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DialAs connects to a Unix socket as another user, on a thread that ends with it.
func DialAs(user int, socket string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(user),
			^uintptr(0)); errno != 0 {
			err = errno
			return
		}
		var fd int
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		f := os.NewFile(uintptr(fd), socket)
		defer f.Close()
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err == nil {
			c, err = net.FileConn(f)
		}
	}()
	<-done
	return c, err
}
