package boot

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ID is the random ID that the kernel chose when it started (random(4)).
func ID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

const attr = "user.tenon.boot"

// Mark makes the open file name the boot; an empty one is not named. Where a file system has no such attributes (tmpfs
// before Linux 6.6, which does not survive a boot either) the file stays without.
func Mark(fd int, id string) {
	if id != "" {
		_ = unix.Fsetxattr(fd, attr, []byte(id), 0)
	}
}

// Of is the boot that the open file names, empty for none.
func Of(fd int) string {
	b := make([]byte, MaxID)
	n, err := unix.Fgetxattr(fd, attr, b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// Earlier reports whether an earlier boot wrote a file, going by the boot that the file names. A file that names none, as on
// file systems without extended attributes, is from an earlier boot if it was last changed before this one. If the file or the
// boot cannot be looked at, Earlier returns false.
func Earlier(path string) bool {
	id, err := ID()
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return false
	}
	return earlier(path, id, time.Now().Add(-time.Duration(up.Nano())))
}

// earlier is Earlier in a boot with this ID that began at this time.
func earlier(path, id string, began time.Time) bool {
	b := make([]byte, MaxID)
	if n, err := unix.Lgetxattr(path, attr, b); err == nil {
		return string(b[:n]) != id
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.ModTime().Before(began) && time.Unix(s.Ctim.Unix()).Before(began)
}
