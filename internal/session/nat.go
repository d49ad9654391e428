package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// natHint is the hint if no backend works.
const natHint = "load the kernel module nf_tables, or install iptables and load the module iptable_nat"

// Usable returns nil if the kernel has nftables. On ADD it also builds the rule set, which fails if
// the kernel lacks a feature for it. CHECK and repair do not build it: trying in another namespace
// would take 15 ms for each attachment of the host.
func (s *Session) Usable(ruleSet *kernel.RuleSet) error {
	if s.Command == cni.Add {
		return s.Host.Rules.Build(ruleSet)
	}
	return s.Host.Rules.Available()
}

// ChooseNAT chooses the backend for an option that leaves it open, and logs the choice with its
// reason. See [kernel.Rules.ChooseNAT].
func (s *Session) ChooseNAT(option string, ruleSet *kernel.RuleSet, queries ...kernel.NATQuery) (kernel.NATChoice, error) {
	choice, err := s.Host.Rules.ChooseNAT(s.Usable(ruleSet), queries...)
	if errors.Is(err, kernel.ErrNoNAT) {
		return choice, cni.Errorf(cni.CodeUnsupportedField, "%s: %w", option, err).WithDetails(natHint)
	}
	if err == nil {
		s.LogNAT(option, choice)
	}
	return choice, err
}

// LogNAT logs which backend ADD chose for an option, and why. For other verbs it only logs a rule
// that has no effect with the backend.
func (s *Session) LogNAT(option string, choice kernel.NATChoice) {
	switch {
	case choice.Void != "":
		s.Log.Warn("an iptables rule has no effect with the chosen backend",
			"option", option, "backend", choice.Backend, "reason", choice.Reason, "rule", choice.Void)
	case s.Command != cni.Add:
	case choice.Backend == kernel.NATByIPTables:
		s.Log.Info("chose the backend", "option", option, "backend", choice.Backend, "reason", choice.Reason)
	default:
		s.Log.Debug("chose the backend", "option", option, "backend", choice.Backend, "reason", choice.Reason)
	}
}

// WarnOfMoves logs the moves that a repair would make, or the error of looking for them. Rules of
// the host that were added after ADD have no effect on the attachment until then. CHECK does not
// fail because of them.
func (s *Session) WarnOfMoves(moves []Move, err error) {
	if err != nil {
		s.Log.Warn("cannot find out whether rules of the host affect the attachment", "error", err)
	}
	for _, m := range moves {
		s.Log.Warn("a rule that was added after ADD has no effect on this attachment; to apply it, run: tenon repair",
			"on", m.What, "rule", m.Reason)
	}
}

// NATStatus returns nil if a backend works for the rule set, and otherwise an error for STATUS with
// [cni.CodeNotAvailable].
func NATStatus(ctx context.Context, ruleSet *kernel.RuleSet) error {
	err := kernel.Buildable(ctx, ruleSet)
	if err == nil {
		return nil
	}
	if other := kernel.IPTablesWorks(ctx); other != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w: nftables: %w; iptables: %w", kernel.ErrNoNAT, err, other).
			WithDetails(natHint)
	}
	return nil
}

// AdviseNAT returns the advice of [plugin.Advisor] about the backend for a rule set; none if the
// backend is nftables.
func AdviseNAT(ctx context.Context, ruleSet *kernel.RuleSet, queries ...kernel.NATQuery) ([]string, error) {
	choice, err := kernel.SuitableNAT(ctx, ruleSet, queries...)
	switch {
	case err != nil:
		return nil, err
	case choice.Void != "":
		return []string{fmt.Sprintf("uses %s on this host (%s), where this rule has no effect: %s",
			choice.Backend, choice.Reason, choice.Void)}, nil
	case choice.Backend == kernel.NATByIPTables:
		return []string{"uses iptables on this host: " + choice.Reason}, nil
	}
	return nil, nil
}
