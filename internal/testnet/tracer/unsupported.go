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
	return errors.New("system calls can be broken on linux/amd64 only, not on " + runtime.GOOS + "/" + runtime.GOARCH)
}
