//go:build !linux

package statefile

import (
	"errors"
	"fmt"
)

// BootID returns an error that wraps [errors.ErrUnsupported].
func BootID() (string, error) { return "", fmt.Errorf("boot ID: %w", errors.ErrUnsupported) }

// MarkBoot does nothing.
func MarkBoot(fd int, id string) {}

// BootOf returns "".
func BootOf(fd int) string { return "" }

// EarlierBoot returns false.
func EarlierBoot(path string) bool { return false }
