// Package trace records the steps of an operation as a tree of spans with times and attributes.
// Packages from the netlink sockets up to the command line mark their steps. A nil [Span] records
// nothing, so an untraced call pays for a look-up in its context and for comparisons with nil. The
// package writes spans; [internal/ops/traceview] reads and renders them.
//
// [internal/ops/traceview]: https://pkg.go.dev/github.com/tenon-cni/tenon/internal/ops/traceview
package trace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// Variable is the environment variable that names the file of the spans.
const Variable = "TENON_TRACE"

// Kind is the kind of a span.
type Kind string

// The kinds of spans.
const (
	Operation Kind = "operation" // an operation of a runtime on an attachment or a network
	Plugin    Kind = "plugin"    // a call of a plugin, seen by its caller
	Delegate  Kind = "delegate"  // a call of a plugin by another plugin
	Process   Kind = "process"   // a call of a plugin, seen by its process
	Change    Kind = "change"    // a change of the kernel or of a file
	Wait      Kind = "wait"      // a wait for a lock or an event
	Undo      Kind = "undo"      // the reversal of a change
)

// begins reports whether a span of the kind is also written when it begins, so that a killed
// process leaves it in the file.
func (k Kind) begins() bool { return k != Change && k != Undo }

// recorder writes the spans of a process.
type recorder struct {
	file  *os.File
	size  int64       // of the file at the start, and of the spans of this process
	warn  func(error) // called once, for the first write that fails
	start time.Time   // with a monotonic reading
	mono  int64       // the monotonic clock of the host at start, in nanoseconds
	flags string      // of traceparent

	mu     sync.Mutex
	hidden []string // values to mask, see merged
	failed bool
}

// Span is a step. Its methods may be called concurrently, and do nothing if it is nil.
type Span struct {
	to     *recorder
	parent *Span
	inner  *Span // the child that [Span.Enter] opened last, nil after its end
	record Record
	open   bool
}

// Start begins a child of the innermost open step of the span of ctx, if it has one, and returns a
// context for calls that are part of the child. The caller must end the child. attributes may be
// nil; see [Span.Set].
func Start(
	ctx context.Context, kind Kind, name string, attributes map[string]any,
) (context.Context, *Span) {
	s := From(ctx)
	if s == nil {
		return ctx, nil
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	c := s.innermost().child(kind, name, attributes)
	return with(ctx, c), c
}

// Waiting begins a wait for a lock or an event, named by kind, within the innermost open step of s.
// The caller must end it.
func (s *Span) Waiting(kind, what string) *Span {
	if s == nil {
		return nil
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	return s.innermost().child(Wait, what, map[string]any{WaitKind: kind})
}

// Child begins a child of the innermost open step of s. The caller must end it.
func (s *Span) Child(kind Kind, name string) *Span {
	if s == nil {
		return nil
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	return s.innermost().child(kind, name, nil)
}

// Enter is like [Span.Child], and makes the child the parent of all steps of s until its end.
func (s *Span) Enter(kind Kind, name string) *Span {
	if s == nil {
		return nil
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	parent := s.innermost()
	parent.inner = parent.child(kind, name, nil)
	return parent.inner
}

// Past records a child that has ended now after the given time.
func (s *Span) Past(kind Kind, name string, took time.Duration, err error) {
	if s == nil {
		return
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.innermost().newChild(kind, name, time.Now().Add(-took)).end(err)
}

func (s *Span) innermost() *Span {
	for s.inner != nil {
		s = s.inner
	}
	return s
}

func (s *Span) child(kind Kind, name string, attributes map[string]any) *Span {
	c := s.newChild(kind, name, time.Now())
	c.record.Attributes = attributes
	if kind.begins() {
		s.to.write(c.record)
	}
	return c
}

func (s *Span) newChild(kind Kind, name string, start time.Time) *Span {
	since := start.Sub(s.to.start)
	c := &Span{to: s.to, parent: s, open: true, record: Record{
		Trace: s.record.Trace, ID: fmt.Sprintf("%016x", rand.Uint64()|1), Parent: s.record.ID,
		Name: name, Kind: kind, PID: os.Getpid(),
		Start: s.to.start.Add(since).UnixNano(), Mono: s.to.mono + since.Nanoseconds(),
	}}
	if c.record.Trace == "" {
		c.record.Trace = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()|1)
	}
	return c
}

// Set sets an attribute: a string, an int or a list of strings.
func (s *Span) Set(key string, value any) {
	if s == nil {
		return
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.record.set(key, value)
}

// Note appends a text to a list in the attributes of the innermost open step, unless the list ends
// with the text.
func (s *Span) Note(key, text string) {
	if s == nil {
		return
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	r := &s.innermost().record
	list, _ := r.Attributes[key].([]string)
	if n := len(list); n == 0 || list[n-1] != text {
		r.set(key, append(slices.Clip(list), text))
	}
}

// Hide masks values in all texts of the spans that this process has not yet written.
func (s *Span) Hide(values ...string) {
	if s == nil {
		return
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.to.hidden = merged(s.to.hidden, values)
}

// End ends the span; err is the error of the step, or nil.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	if s.parent.inner == s {
		s.parent.inner = nil
	}
	s.end(err)
}

func (s *Span) end(err error) {
	if !s.open {
		return
	}
	s.open = false
	s.record.End = s.to.start.Add(time.Since(s.to.start)).UnixNano()
	if err != nil {
		s.record.Error = err.Error()
	}
	s.to.write(s.record)
}

// Environ returns the variables that make a process record its spans as children of the innermost
// open step of s.
func (s *Span) Environ() []string {
	if s == nil {
		return nil
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	vars := []string{Variable + "=" + s.to.file.Name()}
	if r := s.innermost().record; r.ID != "" {
		vars = append(vars, "TRACEPARENT=00-"+r.Trace+"-"+r.ID+"-"+s.to.flags)
	}
	return vars
}
