package invoke

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Exchange is one call with what came of it.
type Exchange struct {
	Call     Call
	Reply    Reply
	Err      error
	Start    time.Time
	Duration time.Duration
}

// Recorder passes calls on to Caller and keeps them. It must not be copied after first use.
type Recorder struct {
	Caller Caller         // nil is [Process]
	Notify func(Exchange) // told of each call when it has ended, in the goroutine of the caller; may be nil

	mu        sync.Mutex
	exchanges []Exchange
}

// Call implements [Caller].
func (r *Recorder) Call(ctx context.Context, c Call) (Reply, error) {
	e := Exchange{Call: c, Start: time.Now()}
	e.Call.Stdin = slices.Clone(c.Stdin)
	e.Reply, e.Err = r.caller().Call(ctx, c)
	e.Duration = time.Since(e.Start)
	r.mu.Lock()
	r.exchanges = append(r.exchanges, e)
	r.mu.Unlock()
	if r.Notify != nil {
		r.Notify(e)
	}
	return e.Reply, e.Err
}

// Find implements [Finder] as Caller does.
func (r *Recorder) Find(paths []string, typ string) (string, error) {
	return Lookup(r.caller(), paths, typ)
}

// Exchanges returns the calls that have ended, in the order in which they did.
func (r *Recorder) Exchanges() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.exchanges)
}

func (r *Recorder) caller() Caller {
	if r.Caller == nil {
		return Process{}
	}
	return r.Caller
}
