package portmap

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

func natTable(a netip.Prefix) kernel.IPTablesTable {
	return kernel.IPTablesTable{Family: familyOf(a.Addr()), Name: "nat"}
}

func (c *Config) ipTables(container string) ipTables {
	return ipTables{
		network: c.Name, container: container, forwards: c.forwards,
		snat: c.snat(), masqAll: c.MasqAll, markBit: c.markBit(), markChain: c.ExternalSetMarkChain,
		conditions: [2][]string{kernel.IPv4: c.ConditionsV4, kernel.IPv6: c.ConditionsV6},
	}
}

// iptablesAvailable returns an error with the given code if the tools are missing.
func iptablesAvailable(code cni.Code) error {
	return session.LacksIPTables(code, "backend iptables", "use backend nftables")
}

// applyIPTables makes the rules, unless another container holds one of the ports. Unlike with
// nftables, two concurrent ADDs of the same port can both succeed.
func (c *Config) applyIPTables(s *chained.Session) error {
	if err := iptablesAvailable(cni.CodeUnsupportedField); err != nil {
		return err
	}
	if err := c.refusePublished(s); err != nil {
		return err
	}
	t := c.ipTables(s.ContainerID)
	for _, a := range c.addrs {
		if err := s.Host.Rules.EditIPTables(natTable(a), t.edit(a)); err != nil {
			return err
		}
	}
	return nil
}

// refusePublished refuses ports that another existing container holds with backend nftables.
func (c *Config) refusePublished(s *chained.Session) error {
	held, err := s.Host.Rules.Held(kernel.Publishing)
	if err != nil {
		return kernel.UnlessNoNFT(err)
	}
	var free []string // holders that no longer exist
	for _, h := range held {
		theirs, ok := kernel.Published(h)
		if !ok || s.SameContainer(h.Comment) || slices.Contains(free, h.Comment) {
			continue
		}
		i := slices.IndexFunc(c.maps, theirs.Overlaps)
		if i < 0 {
			continue
		}
		ruleSets := []*kernel.RuleSet{kernel.Publishing}
		if gone, err := s.TakeOver(ruleSets, h.Comment, theirs.To.Addr()); !gone {
			return errors.Join(chained.InUse(c.maps[i].String(), h.Comment), err)
		}
		free = append(free, h.Comment)
	}
	return nil
}

// Restore restores the rules of iptables, and the setting that connections to 127.0.0.1 need, which
// disappears with the link that leads to the container. It has no rules that deny packets: the
// guard of the loopback addresses is part of the nftables ruleset.
func (c *Config) Restore(
	_ context.Context, s *chained.Session, step session.Step,
) (restored []string, err error) {
	if step != session.Allow {
		return nil, nil
	}
	if ok, err := c.prepare(s); !ok {
		return nil, err
	}
	if restored, err = c.restoreLoopback(s); err != nil {
		return restored, err
	}
	if backend, err := c.backendOf(s); backend != iptablesBackend {
		return restored, err
	}
	t := c.ipTables(s.ContainerID)
	for _, a := range c.addrs {
		missing := s.Host.Rules.CheckIPTables(natTable(a), t.rules(a))
		if missing == nil {
			continue
		}
		if c.backend() == autoBackend { // the deciding rule can be in a legacy table
			if _, err := c.choose(s); err != nil {
				return restored, err
			}
		}
		if err := s.Host.Rules.EditIPTables(natTable(a), t.edit(a)); err != nil {
			return restored, err
		}
		restored = append(restored, missing.Error())
	}
	return restored, nil
}

func (c *Config) verifyIPTables(s *chained.Session) error {
	t := c.ipTables(s.ContainerID)
	for _, a := range c.addrs {
		err := s.Host.Rules.CheckIPTables(natTable(a), t.rules(a))
		if errors.Is(err, kernel.ErrNoIPTablesRule) {
			return cni.Errorf(cni.CodeInternal, "missing hostport rules in %q chain: %w",
				ownChain(s.Name, s.ContainerID), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeIPTables removes iptables rules that this plugin or the upstream plugin made.
func (c *Config) removeIPTables(s *chained.Session, gone chained.Gone) error {
	var removals []kernel.IPTablesRemoval
	if gone.All() {
		var valid []string
		for _, a := range gone.Valid {
			valid = append(valid, a.Container)
		}
		removals = append(removals, leftoversBut(gone.Network, valid))
	} else {
		removals = leftovers(gone.One.Network, gone.One.Container)
	}
	forwarded, unread := false, error(nil)
	if !gone.All() && s.Prev != nil {
		c.addrs = containerAddrs(s)
		forwarded, unread = c.hasChain(s)
	}
	err := errors.Join(unread, removeChains(s, removals))
	if forwarded {
		err = errors.Join(err, c.forgetForwards(s))
	}
	return err
}

// forgetForwards deletes the kernel's flows to the container. It needs the previous result and the
// mappings.
func (c *Config) forgetForwards(s *chained.Session) error {
	if _, err := c.prepare(s); err != nil { // DEL succeeds nevertheless
		return nil
	}
	return forgetGone(s, c.maps)
}
