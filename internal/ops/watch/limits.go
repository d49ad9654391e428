package watch

import (
	"time"
)

// limits decides how often watch repairs. A global bucket bounds the repairs of all attachments. If
// another program removes an object again and again, a back-off of this object, or of the rules of
// the attachment, grows exponentially, and ends when the object has stayed for some time.
type limits struct {
	tokens float64
	filled time.Time
	losses map[string]*losses
}

// losses is the history of an object or an attachment.
type losses struct {
	count int       // of losses in a row
	last  time.Time // of the last repair
	until time.Time // no repair before
}

const (
	burst  = 10          // repairs at once
	refill = time.Second // time for one more

	free     = 2 // repairs in a row without delay
	shortest = time.Second
	longest  = 5 * time.Minute
	// quiet is how long an object must stay, in addition to the last delay, until its losses are
	// forgotten.
	quiet = 2 * time.Minute
)

func newLimits() *limits {
	return &limits{tokens: burst, losses: map[string]*losses{}}
}

// wait returns how long the next repair must wait, 0 if it may start now, which uses a token.
func (l *limits) wait(now time.Time) time.Duration {
	if !l.filled.IsZero() {
		l.tokens = min(burst, l.tokens+float64(now.Sub(l.filled))/float64(refill))
	}
	l.filled = now
	if l.tokens < 1 {
		return time.Duration((1 - l.tokens) * float64(refill))
	}
	l.tokens--
	return 0
}

// refund returns the token of a look that found nothing missing.
func (l *limits) refund() { l.tokens = min(burst, l.tokens+1) }

// until returns the end of a back-off, the zero time if there is none.
func (l *limits) until(key string, now time.Time) time.Time {
	h := l.losses[key]
	if h == nil || !h.until.After(now) {
		return time.Time{}
	}
	return h.until
}

// lost records a loss that was repaired, and returns the number of losses in a row and the delay
// before the next repair.
func (l *limits) lost(key string, now time.Time) (count int, delay time.Duration) {
	h := l.losses[key]
	if h == nil || now.After(h.until.Add(quiet)) && now.After(h.last.Add(quiet)) {
		h = new(losses)
		l.losses[key] = h
	}
	h.count++
	h.last = now
	if h.count > free {
		delay = min(longest, shortest<<min(h.count-free-1, 20))
		h.until = now.Add(delay)
	}
	return h.count, delay
}

// forget drops histories that no longer matter, so that their number stays bounded.
func (l *limits) forget(now time.Time) {
	for key, h := range l.losses {
		if now.After(h.until.Add(quiet)) && now.After(h.last.Add(quiet)) {
			delete(l.losses, key)
		}
	}
}
