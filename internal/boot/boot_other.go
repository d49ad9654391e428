//go:build !linux

package boot

import (
	"errors"
	"fmt"
)

// ID returns an error that wraps [errors.ErrUnsupported].
func ID() (string, error) { return "", fmt.Errorf("boot ID: %w", errors.ErrUnsupported) }

// Mark does nothing.
func Mark(fd int, id string) {}

// Of returns "".
func Of(fd int) string { return "" }

// Earlier returns false.
func Earlier(path string) bool { return false }
