package file

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// BootID is the random ID that the kernel chose when it started (random(4)).
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return trim(b), nil
}

// uptime is the time since the system started, as far as it can be told.
func uptime() time.Duration {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return time.Duration(info.Uptime) * time.Second
}

const (
	bootAttr = "user.tenon.boot"
	maxBoot  = 64 // bytes
)

// markBoot makes the open file name the boot. Where that is not possible the file looks like one of the reference plugin.
func markBoot(fd int, boot string) {
	if boot != "" {
		_ = unix.Fsetxattr(fd, bootAttr, []byte(boot), 0)
	}
}

// bootOf is the boot that the open file names, empty for none.
func bootOf(fd int) string {
	b := make([]byte, maxBoot)
	n, err := unix.Fgetxattr(fd, bootAttr, b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}
