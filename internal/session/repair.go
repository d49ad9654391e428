package session

import (
	"context"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Repairer is a [plugin.Plugin] with rules on the host that another program can remove, such as a
// firewall that flushes the rule set when it starts, or with links, addresses, routes and settings
// that an administrator can delete.
type Repairer interface {
	// Repair adds to the Repairs the rules that ADD made for the attachment, and changes nothing.
	// The call is a CHECK call, in any version of the protocol, and may come at any time.
	//
	// An error has the code [cni.CodeUnknownContainer] if the container no longer exists. After an
	// error the caller must ignore the Repairs.
	Repair(context.Context, *plugin.Call, *Repairs) error
}

// Repairs describe the repair of an attachment by a [Repairer]. A repair first restores the rule
// sets of all attachments, then runs the steps of all attachments, step by step, and finally moves
// attachments to another backend. It mends other objects between the steps [Deny] and [Allow], so
// that no packet passes before the rules that refuse packets exist.
type Repairs struct {
	Rules kernel.Batch // elements of rule sets

	// Restore runs a step and returns the rules that were missing, for people. It does not touch
	// other rules. nil means that there is nothing to restore.
	Restore func(context.Context, Step) (restored []string, err error)

	// Mend restores missing objects other than rules, and nothing that exists. An error has the code
	// [cni.CodeUnknownContainer] if the container's interface no longer exists or belongs to another
	// attachment. nil means that there is nothing to mend.
	Mend func(context.Context, *Mending) error

	// Move moves rules of the attachment to the backend that the host requires now. It creates the
	// new rules before it removes the old ones. It returns the moves that it made or, with dryRun,
	// would make. nil means that there is nothing to move.
	Move func(ctx context.Context, dryRun bool) ([]Move, error)
}

// Step is a step of a repair outside the rule sets. Deny precedes Allow for all attachments, so
// that a repair never accepts packets that were refused before.
type Step int

// The steps, in their order.
const (
	Deny  Step = iota // restore rules that refuse packets
	Allow             // restore the rest
)

// Move is a change of the backend.
type Move struct {
	What    string            `json:"what"` // "host ports" or "masquerading"
	Backend kernel.NATBackend `json:"backend"`
	Reason  string            `json:"reason"`
}
