package load

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// interval is the real time between two lines of progress.
const interval = 30 * time.Second

// progress shows an operator how far a run is. A bubble writes it, and a goroutine outside reads it
// in real time.
type progress struct {
	phase       atomic.Pointer[string]
	allocations atomic.Int64
	elapsed     atomic.Int64 // time in the run, virtual in a bubble
}

// begin names the phase that begins.
func (p *progress) begin(phase string) { p.phase.Store(&phase) }

// follow updates the time in the run until the context ends.
func (p *progress) follow(ctx context.Context) {
	start := time.Now()
	for {
		select {
		case <-time.After(time.Second):
			p.elapsed.Store(int64(time.Since(start)))
		case <-ctx.Done():
			return
		}
	}
}

// line returns the progress after a real time.
func (p *progress) line(passed time.Duration) string {
	phase := "start"
	if name := p.phase.Load(); name != nil {
		phase = *name
	}
	return fmt.Sprintf("%s: %d allocations, %s in the run, %s real time", phase,
		p.allocations.Load(), time.Duration(p.elapsed.Load()).Round(time.Second),
		passed.Round(time.Second))
}

// print prints a line in each interval, until the caller calls stop.
func (p *progress) print(out io.Writer) (stop func()) {
	start := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-time.After(interval):
				fmt.Fprintln(out, p.line(time.Since(start)))
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
