package trace

import "context"

type spanKey struct{}

// From returns the span that a call with ctx belongs to, or nil.
func From(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// with returns a context for calls that belong to s.
func with(ctx context.Context, s *Span) context.Context {
	return context.WithValue(ctx, spanKey{}, s)
}
