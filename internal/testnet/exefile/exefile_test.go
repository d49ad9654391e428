package exefile_test

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

// TestWrite executes files right after it has written them, while other children start. With
// os.WriteFile, one of several thousand files is busy.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i)))
			for range 50 {
				if err := exefile.Write(path, []byte("#!/bin/sh\nexit 0\n")); err != nil {
					t.Error(err)
				}
				if out, err := exec.Command(path).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
	all.Wait()
}
