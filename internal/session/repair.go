package session

import (
	"context"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Repairer is a [plugin.Plugin] with rules on the host that another program can remove, such as a
// firewall that flushes the rule set when it starts. The link, addresses and routes are not part of
// a repair.
type Repairer interface {
	// Repair adds to the Repairs what ADD has made for the attachment. The call is one of CHECK, in
	// any version of the protocol, and Repair may be called at any time. It changes nothing itself.
	//
	// The code of an error is [cni.CodeUnknownContainer] if the container no longer exists. The
	// Repairs count for nothing then.
	Repair(context.Context, *plugin.Call, *Repairs) error
}

// Repairs are what a [Repairer] has made for an attachment. A repair restores the rule set of all
// attachments first, then it runs the steps of all attachments, step by step, and at last it moves
// attachments to another backend.
type Repairs struct {
	Rules kernel.Batch // of the rule set

	// Restore runs a step and returns, for people, a list of the rules that were missing. It does
	// not touch other rules. nil: there is nothing to restore.
	Restore func(context.Context, Step) (restored []string, err error)

	// Move moves what the attachment has to the backend that the host asks for now. It makes the
	// new rules before it removes the old ones. It returns what it moved or, with dryRun, would
	// move. nil: there is nothing to move.
	Move func(ctx context.Context, dryRun bool) ([]Move, error)
}

// Step is a step of a repair outside the rule set. Deny comes before Allow for all attachments, so
// that a repair lets nothing through that was refused before.
type Step int

// The steps, in their order.
const (
	Deny  Step = iota // restore what refuses packets
	Allow             // restore the rest
)

// Move is a change of the backend.
type Move struct {
	What    string            `json:"what"` // "host ports" or "masquerading"
	Backend kernel.NATBackend `json:"backend"`
	Reason  string            `json:"reason"`
}
