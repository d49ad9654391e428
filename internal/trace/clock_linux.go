package trace

import "golang.org/x/sys/unix"

// monotonic returns the clock that all processes of the host share, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano()
}
