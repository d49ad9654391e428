package invoke

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Exchange is a call with its outcome.
type Exchange struct {
	Call     Call
	Reply    Reply
	Err      error
	Start    time.Time
	Duration time.Duration
}

// Recorder passes calls on to Caller and records them. It must not be copied after first use.
type Recorder struct {
	Caller Caller         // nil means [Process]
	Notify func(Exchange) // called after each call, in its goroutine; may be nil

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

// Exchanges returns the finished calls in the order in which they ended.
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
