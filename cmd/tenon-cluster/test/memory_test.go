package test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestChurnInMemory is the smallest world: nodes allocate and release, and nothing fails.
func TestChurnInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t, options{nodes: 5, pool: smallPool()})
		end := w.background(20)
		time.Sleep(10 * time.Second)
		if n := end(); n == 0 {
			t.Error("nothing was allocated")
		}
		w.finish()
	})
}
