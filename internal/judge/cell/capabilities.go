package cell

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dropped are the capabilities that reach the host beyond the namespaces of the cell.
var dropped = []uintptr{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_TIME, unix.CAP_SYS_BOOT, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD,
	unix.CAP_SYSLOG, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
	unix.CAP_AUDIT_CONTROL, unix.CAP_SYS_PACCT, unix.CAP_LINUX_IMMUTABLE, unix.CAP_SYS_NICE, unix.CAP_SYS_RESOURCE,
	unix.CAP_DAC_READ_SEARCH, unix.CAP_PERFMON,
}

// dropCapabilities takes capabilities from all programs that this thread starts from now on. In a user
// namespace, they do not reach the host anyway.
func dropCapabilities() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, c := range dropped {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}
