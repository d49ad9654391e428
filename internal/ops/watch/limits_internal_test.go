package watch

import (
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/host/events"
)

// TestBackOff: two repairs in a row come at once, the delays then double up to a limit, and a quiet
// time ends the history.
func TestBackOff(t *testing.T) {
	t.Parallel()
	l, now := newLimits(), time.Unix(1e9, 0)
	var delays []time.Duration
	for range 14 {
		_, delay := l.lost("bridge br0", now)
		delays = append(delays, delay)
		if until := l.until("bridge br0", now); delay > 0 && until != now.Add(delay) {
			t.Errorf("back-off ends at %v, want %v later", until, delay)
		}
		now = now.Add(delay)
	}
	for i, want := range map[int]time.Duration{0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 10: 256, 11: 300, 13: 300} {
		if delays[i] != want*time.Second {
			t.Errorf("delay %d is %v, want %ds", i, delays[i], want)
		}
	}
	if !l.until("another", now).IsZero() {
		t.Error("the back-off of an object delays another one")
	}
	now = now.Add(quiet + time.Second)
	l.forget(now)
	if len(l.losses) != 0 {
		t.Errorf("%d histories after the quiet time", len(l.losses))
	}
	if count, delay := l.lost("bridge br0", now); count != 1 || delay != 0 {
		t.Errorf("after the quiet time: loss %d, delay %v", count, delay)
	}
}

// TestBucket: a burst is repaired at once, further repairs come one per second.
func TestBucket(t *testing.T) {
	t.Parallel()
	l, now := newLimits(), time.Unix(1e9, 0)
	for i := range burst {
		if after := l.wait(now); after != 0 {
			t.Errorf("repair %d waits %v", i, after)
		}
	}
	if after := l.wait(now); after != refill {
		t.Errorf("the next repair waits %v", after)
	}
	if after := l.wait(now.Add(refill)); after != 0 {
		t.Errorf("after a second it waits %v", after)
	}
	l.refund()
	if after := l.wait(now.Add(refill)); after != 0 {
		t.Errorf("after a look in vain it waits %v", after)
	}
}

// TestOverrun: after lost notifications, the next look is at all attachments.
func TestOverrun(t *testing.T) {
	t.Parallel()
	w := &watcher{index: newIndex(nil, nil), pending: newPending(), now: time.Now}
	w.take(events.Batch{Overrun: true})
	if !w.pending.whole || w.due.IsZero() || len(w.pending.causes) != 1 {
		t.Errorf("pending: %+v, due %v", w.pending, w.due)
	}
}

// TestBurst: a look waits until a burst is over, but not for ever.
func TestBurst(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1e9, 0)
	now := begin
	w := &watcher{index: newIndex(nil, nil), pending: newPending(), now: func() time.Time { return now }}
	for range 100 {
		w.take(events.Batch{Notices: make([]events.Notice, 1)})
		if w.due.Sub(now) > settle || w.due.Before(now) && w.due != begin.Add(patience) {
			t.Fatalf("due %v after the notification", w.due.Sub(now))
		}
		now = now.Add(settle / 2)
	}
	if w.due != begin.Add(patience) {
		t.Errorf("due %v after the begin of the burst", w.due.Sub(begin))
	}
}

// TestRestAfter checks that a slow look does not delay the next one for minutes.
func TestRestAfter(t *testing.T) {
	t.Parallel()
	for look, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 200 * time.Millisecond, time.Minute: 10 * time.Second,
	} {
		if got := restAfter(look); got != want {
			t.Errorf("%s after a look of %s, want %s", got, look, want)
		}
	}
}
