package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
)

// EditIPTables makes an edit in a table, in one transaction. Rollback reverts the edit, except for
// chains that are in use by other rules now. The error wraps [ErrNoIPTables] if the tool is
// missing.
func (s Rules) EditIPTables(t IPTablesTable, e IPTablesEdit) error {
	legacy, err := s.space.editsLegacy(t, e)
	if err != nil {
		return err
	}
	t.Legacy = legacy
	chains := slices.Concat(e.Chains, e.Own)
	var undo iptables.Undo
	revert := func() error {
		ctx, cancel := s.space.tx.undoContext()
		defer cancel()
		return s.space.lockedIPTables(ctx, t, chains, func(fresh bool) error {
			if fresh {
				return nil
			}
			return t.Revert(ctx, s.space.NS, undo)
		})
	}
	return s.space.tx.Do(fmt.Sprintf("edit %s with chains %s", t, strings.Join(chains, " ")), func() error {
		err := s.space.lockedIPTables(s.space.tx.ctx, t, chains, func(fresh bool) (err error) {
			undo, err = t.Apply(s.space.tx.ctx, s.space.NS, e, fresh)
			return err
		})
		if err != nil && s.space.tx.ctx.Err() != nil { // cancelled, but possibly done
			return errors.Join(err, revert())
		}
		return err
	}, revert)
}

// lockedIPTables calls fn while it holds the lock of the namespace. fresh means that none of the
// chains exists.
func (s *Space) lockedIPTables(ctx context.Context, t iptables.Table, chains []string, fn func(fresh bool) error) error {
	unlock, err := s.NS.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	legacy, err := t.HasLegacy(s.NS)
	if err != nil {
		return err
	}
	exists := legacy
	for i := 0; i < len(chains) && !exists; i++ {
		if exists, err = s.Rules.HasChain(nftTable(t), chains[i]); UnlessNoNFT(err) != nil {
			return err
		}
	}
	return fn(!exists)
}

// CheckIPTables looks for rules in a table of either variant, in the form of [IPTablesEdit]. The
// error names the first missing rule and wraps [ErrNoIPTablesRule].
func (s Rules) CheckIPTables(t IPTablesTable, rules []string) error {
	t.Legacy = s.space.legacyOnly()
	missing := t.Check(s.space.tx.ctx, s.space.NS, rules)
	if t.Legacy || !errors.Is(missing, iptables.ErrMissing) {
		return missing
	}
	if there, err := t.HasLegacy(s.space.NS); !there || err != nil {
		return errors.Join(missing, err)
	}
	t.Legacy = true
	if err := t.Check(s.space.tx.ctx, s.space.NS, rules); !errors.Is(err, iptables.ErrMissing) {
		return err
	}
	return missing
}

// editsLegacy reports whether to make an edit with legacy iptables: if only that works, if
// [Rules.ChooseNAT] found the deciding rule there, or if the owner's chains are already there.
func (s *Space) editsLegacy(t IPTablesTable, e IPTablesEdit) (bool, error) {
	if s.legacyOnly() {
		return true, nil
	}
	if t.Name != "nat" {
		return false, nil
	}
	if legacy, known := s.legacyNAT[t.Family]; known {
		return legacy, nil
	}
	own := e.Own
	if len(own) == 0 {
		own = e.Chains
	}
	tables := hostnat.Open(s.NS, t.Family, nil)
	defer tables.Close()
	for _, chain := range own {
		if _, there, err := tables.LegacyRules(chain); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// legacyOnly reports whether only legacy iptables can work here.
func (s *Space) legacyOnly() bool {
	return errors.Is(s.Rules.Available(), ErrNoNFT)
}

// MasqueradeIPTables masquerades packets from the addresses to other networks by iptables, in one
// transaction per family. Rollback removes the new jumps. The error wraps [ErrNoIPTables] if the
// tool is missing.
func (s Rules) MasqueradeIPTables(m IPTablesMasquerade, addrs []netip.Prefix) error {
	for _, f := range bothFamilies {
		mine := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Prefix) bool { return a.Addr().Is4() != (f == iptables.IPv4) })
		if len(mine) == 0 {
			continue
		}
		if err := s.EditIPTables(iptables.Table{Family: f, Name: "nat"}, m.Edit(f, mine)); err != nil {
			return err
		}
	}
	return nil
}
