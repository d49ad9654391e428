package changes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/changes"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// looks counts the looks of a Follow that runs until the test ends.
type looks struct {
	mu    sync.Mutex
	times []time.Time
}

func follow(t *testing.T, n *testnet.Net, dirs ...string) *looks {
	t.Helper()
	l := &looks{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Host.Run(func() error {
			return changes.Follow(ctx, func(context.Context) ([]string, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.times = append(l.times, time.Now())
				return dirs, nil
			})
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	return l
}

func (l *looks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// moreThan waits for more than so many looks.
func (l *looks) moreThan(t *testing.T, n int) {
	t.Helper()
	testnet.Eventually(t, func() error {
		if got := l.count(); got <= n {
			return fmt.Errorf("%d looks", got)
		}
		return nil
	})
}

// TestFollow: each kind of change leads to another look, also in a directory that did not exist, and
// many changes to one look per second.
func TestFollow(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	dir := filepath.Join(t.TempDir(), "records")
	l := follow(t, n, dir)
	l.moreThan(t, 0)
	for _, change := range []func() error{
		func() error { return os.Mkdir(dir, 0o700) },
		func() error { return os.WriteFile(filepath.Join(dir, "web.json"), nil, 0o600) },
		func() error { return os.Remove(filepath.Join(dir, "web.json")) },
		func() error { n.Host.Batch("link add br0 type bridge"); return nil },
		func() error { n.Host.Batch("link delete br0"); return nil },
	} {
		before := l.count()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		l.moreThan(t, before)
	}
	before := l.count()
	for i := range 100 {
		n.Host.Batch(fmt.Sprintf("link add br%d type bridge", i))
	}
	l.moreThan(t, before)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 1; i < len(l.times); i++ {
		if pause := l.times[i].Sub(l.times[i-1]); pause < 900*time.Millisecond {
			t.Errorf("look %d followed after %v", i, pause)
		}
	}
}

// TestFollowEnds: the error of a look ends Follow, unless the context is done.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	broken := errors.New("broken")
	run := func(ctx context.Context, look func() error) error {
		return n.Host.Run(func() error {
			return changes.Follow(ctx, func(context.Context) ([]string, error) { return nil, look() })
		})
	}
	if err := run(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Follow returned %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := run(ctx, func() error { cancel(); return broken }); err != nil {
		t.Errorf("Follow returned %v after its context was done", err)
	}
}
