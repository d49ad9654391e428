//go:build !linux

package statefile

import "os"

// Names returns the names of all files in a directory, in no order.
func Names(dir *os.File) ([]string, error) { return dir.Readdirnames(-1) }
