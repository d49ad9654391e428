// Package changes follows the attachments of this host: it lets a command look at them again after a
// change, and sleeps in between. It does not find out which attachment has changed.
package changes

import (
	"context"
	"time"

	"github.com/tenon-cni/tenon/internal/host/events"
	"github.com/tenon-cni/tenon/internal/kernel"
)

const (
	// burst is how long Follow waits for further changes after the first one.
	burst = 100 * time.Millisecond
	// leastPause is the shortest time between two looks. It is longer if a look takes long, so that
	// the program spends at most a tenth of its time on them.
	leastPause = time.Second
)

// Follow calls look, and calls it again after each change of an interface of the current namespace,
// of the caller's thread, or of its containers, and in the directories that look returned last. It
// returns nil when ctx is done, the error of look, or an error if it cannot receive changes, which
// wraps [os.ErrPermission] if the process lacks a capability.
func Follow(ctx context.Context, look func(context.Context) (dirs []string, err error)) error {
	host, err := kernel.CurrentNamespace()
	if err != nil {
		return err
	}
	defer host.Close()
	source, err := events.Open(ctx, host, events.Options{
		Relevant: func(l *events.Loss) bool { return l.Kind == events.LostLink },
		Tables:   func(events.Table) bool { return false },
	})
	if err != nil {
		return err
	}
	defer source.Close()
	for {
		start := time.Now()
		dirs, err := look(ctx)
		if err == nil {
			err = source.Watch(dirs) // directories that it has not watched before count as changed
		}
		if err == nil {
			err = wait(ctx, source, start.Add(max(leastPause, 10*time.Since(start))))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wait waits for a change, and then for the end of a burst and for the time of the next look.
func wait(ctx context.Context, source *events.Source, next time.Time) error {
	select {
	case <-ctx.Done():
		return nil
	case <-source.C:
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(max(burst, time.Until(next))):
	}
	_, err := source.Take() // the next look sees these changes
	return err
}
