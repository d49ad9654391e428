package session

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// Steps are what a plugin has left to do for a repair once the ruleset is back. Of all attachments Deny comes first, which
// refuses packets, then Allow, so that nothing is let through meanwhile that was not before. Move
// comes last.
type Steps struct {
	Deny, Allow Step
	Move        Mover
}

// Step is a part of a repair. It returns what was missing, for people. A nil Step is nothing to do.
type Step func(context.Context) (restored []string, err error)

// Run runs the step.
func (s Step) Run(ctx context.Context) (restored []string, err error) {
	if s == nil {
		return nil, nil
	}
	return s(ctx)
}

// Mover moves what an attachment has to the backend that the host asks for now. It makes the new
// rules before it removes the old ones. It returns what it moved or, with dryRun, would move. A nil
// Mover has nothing to move.
type Mover func(ctx context.Context, dryRun bool) ([]Move, error)

// Move is a change of the backend.
type Move struct {
	What    string            `json:"what"` // "host ports" or "masquerading"
	Backend kernel.NATBackend `json:"backend"`
	Reason  string            `json:"reason"`
}

// Run runs the mover.
func (m Mover) Run(ctx context.Context, dryRun bool) ([]Move, error) {
	if m == nil {
		return nil, nil
	}
	return m(ctx, dryRun)
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
	_, move := s.Move.Run(ctx, false)
	return errors.Join(deny, allow, move)
}
