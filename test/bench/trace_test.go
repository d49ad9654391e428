package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The parser separates the calls of several threads and drops calls without an entry or a return.
func TestParseTrace(t *testing.T) {
	const trace = `# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           bench-4711    [001] .....  1000.000010: sys_exit: NR 0 = 1
           bench-4711    [001] .....  1000.000100: sys_enter: NR 44 (3, c000, 20, 0, c000, c)
       bench-x y-4712    [000] ..... 999999.999990: sys_enter: NR 46 (4, c000, 0, 0, 0, 0)
           bench-4711    [000] .....  1000.000350: sys_exit: NR 44 = 32
       bench-x y-4712    [000] .N...  1000000.000015: sys_exit: NR 46 = 20
           bench-4711    [001] d..1.  1000.000400: sys_enter: NR 202 (1, 80, 0, 0, 0, 0)
`
	got, err := parseTrace([]byte(trace))
	want := []systemCall{{unix.SYS_SENDTO, 250 * time.Microsecond}, {unix.SYS_SENDMSG, 25 * time.Microsecond}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(systemCall{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	tracer := tracer{floor: 50 * time.Microsecond}
	all, network, count := tracer.kernelTime(append(got,
		systemCall{unix.SYS_OPENAT, 60 * time.Microsecond}, systemCall{unix.SYS_FUTEX, time.Second}))
	if all != 210*time.Microsecond || network != 200*time.Microsecond || count != 3 {
		t.Errorf("%v, of it %v, in %d calls", all, network, count)
	}
}
