package statefile

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BootID returns the random ID that the kernel generated when it started (random(4)).
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

const bootAttr = "user.tenon.boot"

// MarkBoot marks the open file with the boot that has this ID, unless the ID is empty. On a file
// system without extended attributes (tmpfs before Linux 6.6, which does not survive a reboot
// either) the file has no mark.
func MarkBoot(fd int, id string) {
	if id != "" {
		_ = unix.Fsetxattr(fd, bootAttr, []byte(id), 0)
	}
}

// BootOf returns the ID of the boot in the mark of the open file, or "".
func BootOf(fd int) string {
	b := make([]byte, MaxBootID)
	n, err := unix.Fgetxattr(fd, bootAttr, b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// EarlierBoot reports whether a file was written in an earlier boot, according to its mark. A file
// without a mark, as on file systems without extended attributes, is from an earlier boot if its
// last change precedes the running boot. EarlierBoot returns false if it cannot examine the file or
// the boot.
func EarlierBoot(path string) bool {
	id, err := BootID()
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return false
	}
	return earlierIn(path, id, time.Now().Add(-time.Duration(up.Nano())))
}

// earlierIn is EarlierBoot in the boot with this ID and start time.
func earlierIn(path, id string, began time.Time) bool {
	b := make([]byte, MaxBootID)
	if n, err := unix.Lgetxattr(path, bootAttr, b); err == nil {
		return string(b[:n]) != id
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.ModTime().Before(began) && time.Unix(s.Ctim.Unix()).Before(began)
}
