package session

import (
	"context"
	"errors"
)

// Steps are what a plugin has left to do for a repair once the ruleset is back. Of all attachments Deny comes first, which
// refuses packets, then Allow, so that nothing is let through meanwhile that was not before.
type Steps struct{ Deny, Allow Step }

// Step is a part of a repair. It returns what was missing, for people. A nil Step is nothing to do.
type Step func(context.Context) (restored []string, err error)

// Run runs the step.
func (s Step) Run(ctx context.Context) (restored []string, err error) {
	if s == nil {
		return nil, nil
	}
	return s(ctx)
}

type stepsKey struct{}

// WithSteps returns a context in which a plugin that repairs leaves its steps for later, and where.
func WithSteps(ctx context.Context) (context.Context, *Steps) {
	s := new(Steps)
	return context.WithValue(ctx, stepsKey{}, s), s
}

// PutOff leaves steps for later. Where nobody waits for them, they are run at once.
func PutOff(ctx context.Context, s Steps) error {
	if later, ok := ctx.Value(stepsKey{}).(*Steps); ok {
		*later = s
		return nil
	}
	_, deny := s.Deny.Run(ctx)
	_, allow := s.Allow.Run(ctx)
	return errors.Join(deny, allow)
}
