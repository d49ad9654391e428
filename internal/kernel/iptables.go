package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel/nft"
	"github.com/tenon-cni/tenon/internal/kernel/xtables"
)

// ErrNoIPTables says that iptables is not installed, or not in PATH.
var ErrNoIPTables = xtables.ErrNoTool

// IPTablesAvailable returns nil if iptables can be used, else an error that wraps [ErrNoIPTables].
func IPTablesAvailable() error { return xtables.Available() }

// IPTables is what to look for in the POSTROUTING chains of iptables and ip6tables: jumps to a chain.
type IPTables struct {
	Chain  string          // "": to any
	Match  func(Jump) bool // nil: all
	Legacy bool            // look into tables of the legacy kind too, which only a process can read
}

// Jump is a rule that jumps from POSTROUTING to a chain.
type Jump = xtables.Jump

// natTable is where iptables keeps a nat table of its newer kind.
func natTable(f xtables.Family) Table {
	return Table{Family: [...]nft.Family{nft.IPv4, nft.IPv6}[f], Name: "nat"}
}

const postrouting = "POSTROUTING"

func (i IPTables) matches(j Jump) bool {
	return j.Chain != "" && (i.Chain == "" || i.Chain == j.Chain) && (i.Match == nil || i.Match(j))
}

func jumpOf(r Rule) Jump { return Jump{Chain: r.Jump, Comment: r.Comment, Source: r.Source} }

// MasqueradeIPTables masquerades by iptables what addresses send beyond their networks, in one transaction for each
// family. Undone by removing the jumps that were made. The error wraps [ErrNoIPTables] if there is no such tool.
func (s *Space) MasqueradeIPTables(m xtables.Masquerade, addrs []netip.Prefix) error {
	for _, f := range []xtables.Family{xtables.IPv4, xtables.IPv6} {
		mine := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Prefix) bool { return a.Addr().Is4() != (f == xtables.IPv4) })
		if len(mine) == 0 {
			continue
		}
		var added []netip.Addr
		undo := func() error {
			ctx, cancel := s.tx.undoContext()
			defer cancel()
			return s.removeIPTables(ctx, f, IPTables{
				Chain: m.Chain, Match: func(j Jump) bool { return slices.Contains(added, j.Source) }, Legacy: true,
			})
		}
		err := s.tx.Do(fmt.Sprintf("masquerade by iptables %s", strings.Trim(fmt.Sprint(mine), "[]")), func() (err error) {
			if added, err = s.addIPTables(f, m, mine); err != nil { // if it was called off, it can have been done all the same
				return errors.Join(err, undo())
			}
			return nil
		}, undo)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Space) addIPTables(f xtables.Family, m xtables.Masquerade, addrs []netip.Prefix) ([]netip.Addr, error) {
	unlock, err := s.NS.Lock(s.tx.ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	exists, err := s.HasChain(natTable(f), m.Chain)
	if err != nil && !errors.Is(err, ErrNoNFT) {
		return nil, err
	}
	legacy, err := xtables.HasLegacy(s.NS, f)
	if err != nil {
		return nil, err
	}
	return m.Add(s.tx.ctx, s.NS, f, !exists && !legacy, addrs)
}

// UnmasqueradeIPTables removes jumps, and with the last jump to a chain the chain. It cannot be undone. Without tables
// of the legacy kind no process is started.
func (s *Space) UnmasqueradeIPTables(what IPTables) error {
	return s.tx.Do(strings.TrimSpace("unmasquerade by iptables "+what.Chain), func() error {
		var errs []error
		for _, f := range []xtables.Family{xtables.IPv4, xtables.IPv6} {
			errs = append(errs, s.removeIPTables(s.tx.ctx, f, what))
		}
		return errors.Join(errs...)
	}, nil)
}

func (s *Space) removeIPTables(ctx context.Context, f xtables.Family, what IPTables) error {
	return errors.Join(s.removeNatJumps(ctx, f, what), s.removeLegacyJumps(ctx, f, what))
}

func (s *Space) removeNatJumps(ctx context.Context, f xtables.Family, what IPTables) error {
	c, err := s.rules()
	if err != nil {
		return UnlessNoNFT(err)
	}
	chains := []string{what.Chain}
	if what.Chain == "" {
		if chains, err = s.matchingChains(f, what); err != nil {
			return err
		}
	}
	var errs []error
	for _, chain := range chains {
		only := what
		only.Chain = chain
		errs = append(errs, UnlessNoNFT(c.Prune(ctx, nft.Pruning{
			Table: natTable(f), Base: postrouting, Chains: []string{chain},
			Match: func(r Rule) bool { return only.matches(jumpOf(r)) },
		})))
	}
	return errors.Join(errs...)
}

// matchingChains lists the chains that jumps which match lead to.
func (s *Space) matchingChains(f xtables.Family, what IPTables) (chains []string, err error) {
	rules, err := s.natRules(natTable(f), "")
	for _, r := range rules {
		if what.matches(jumpOf(r)) && !slices.Contains(chains, r.Jump) {
			chains = append(chains, r.Jump)
		}
	}
	return chains, err
}

func (s *Space) removeLegacyJumps(ctx context.Context, f xtables.Family, what IPTables) error {
	if !what.Legacy {
		return nil
	}
	if ok, err := xtables.HasLegacy(s.NS, f); !ok {
		return err
	}
	unlock, err := s.NS.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = xtables.LegacyRemove(ctx, s.NS, f, what.matches)
	if errors.Is(err, ErrNoIPTables) { // then it was not used
		return nil
	}
	return err
}

// IPTablesJumps lists jumps of both families.
func (s *Space) IPTablesJumps(what IPTables) (jumps []Jump, err error) {
	for _, f := range []xtables.Family{xtables.IPv4, xtables.IPv6} {
		rules, err := s.natRules(natTable(f), what.Chain)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			jumps = append(jumps, jumpOf(r))
		}
		legacy, err := s.legacyJumps(f, what)
		if err != nil {
			return nil, err
		}
		jumps = append(jumps, legacy...)
	}
	return slices.DeleteFunc(jumps, func(j Jump) bool { return !what.matches(j) }), nil
}

// natRules lists the rules of POSTROUTING, unless the chain they are to lead to is not there.
func (s *Space) natRules(t Table, chain string) ([]Rule, error) {
	if chain != "" {
		if ok, err := s.HasChain(t, chain); !ok {
			return nil, UnlessNoNFT(err)
		}
	}
	rules, err := s.Rules(t, postrouting)
	return rules, UnlessNoNFT(err)
}

func (s *Space) legacyJumps(f xtables.Family, what IPTables) ([]Jump, error) {
	if !what.Legacy {
		return nil, nil
	}
	if ok, err := xtables.HasLegacy(s.NS, f); !ok {
		return nil, err
	}
	return xtables.LegacyJumps(s.tx.ctx, s.NS, f)
}
