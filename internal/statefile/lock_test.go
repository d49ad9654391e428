package statefile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// Shared locks exclude exclusive ones, and the last release removes the file.
func TestTakeLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks", "a")
	take := func(m statefile.LockMode) (statefile.Lock, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return statefile.TakeLock(ctx, path, m)
	}
	first, err := take(statefile.Shared)
	if err != nil {
		t.Fatal(err)
	}
	second, err := take(statefile.Shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(statefile.Exclusive); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("exclusive while shared: %v", err)
	}
	first.Release()
	statefile.SweepLock(path)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of a lock that is held: %v", err)
	}
	second.Release()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a released lock: %v", err)
	}
	third, err := take(statefile.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Release()
	if _, err := take(statefile.Shared); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shared while exclusive: %v", err)
	}
}
