package journal

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp sets the time, the boot and the time since the boot to now.
func (r *Record) Stamp() {
	r.Time = time.Now().UTC()
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil {
		r.Uptime = time.Duration(up.Nano())
	}
	r.Boot = readLine("/proc/sys/kernel/random/boot_id") // without it, history trusts the wall clock
}

// Parent returns the name of the process that started this one, "" if it is not known.
func Parent() string { return readLine(fmt.Sprintf("/proc/%d/comm", os.Getppid())) }

// readLine returns the short text in a file of procfs. It saves the system calls with which package
// os prepares a file for polling.
func readLine(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	var buf [64]byte
	n, err := unix.Read(fd, buf[:])
	if unix.Close(fd) != nil || err != nil {
		return ""
	}
	return string(bytes.TrimSpace(buf[:n]))
}
