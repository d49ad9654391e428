//go:build !linux || !amd64

package tracer

import (
	"errors"
	"os/exec"
	"runtime"
)

// Trace is available on linux/amd64 only.
func Trace(*exec.Cmd, []byte, Fault) (*Run, error) { return nil, traceable() }

func traceable() error {
	return errors.New("faults in system calls need linux/amd64, not " + runtime.GOOS + "/" +
		runtime.GOARCH)
}
