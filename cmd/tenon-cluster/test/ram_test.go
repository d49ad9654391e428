package test

import (
	"os"
	"testing"
)

// ram returns a directory for the files of nodes in memory, if the host has one: what the tests
// measure and break is not the disk.
func ram(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tenon-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
