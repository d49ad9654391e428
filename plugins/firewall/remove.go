package firewall

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Remove removes the rules of attachments that no longer exist. It removes rules of iptables and
// sources of firewalld first, because only the nftables elements record their owners. It also
// removes upstream's rules for the addresses of the previous result.
func (c *Config) Remove(ctx context.Context, s *chained.Session, gone chained.Gone) error {
	held, err := s.Host.Rules.Owned(kernel.Filtering)
	if err != nil {
		return err
	}
	r := remover{Session: s, conf: c, gone: gone}
	var addrs []netip.Addr
	var ifaces []string
	if s.Prev != nil {
		addrs = addresses(s)
	}
	for _, h := range held {
		if !gone.Tag(h.Comment) {
			continue
		}
		if a, ok := h.Admitted(); ok && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
		if iface, ok := h.Isolated(); ok && !slices.Contains(ifaces, iface) {
			ifaces = append(ifaces, iface)
		}
	}
	if err := errors.Join(r.addresses(ctx, addrs), r.interfaces(ifaces)); err != nil {
		return err
	}
	err = s.Host.Rules.Release(gone.Tag, kernel.Filtering, kernel.PortIsolation)
	if !r.shared {
		return err
	}
	// Attachments that are removed at the same time can leave shared rules to each other. The last
	// one that releases its elements finds no other holder and removes the rules here.
	return errors.Join(err, r.addresses(ctx, addrs), r.interfaces(ifaces))
}

type remover struct {
	*chained.Session
	conf   *Config
	gone   chained.Gone
	shared bool // rules were kept because another attachment has an element for them
}

// addresses removes rules and sources of addresses that no other attachment has.
func (r *remover) addresses(ctx context.Context, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	taken := func(a netip.Addr) bool {
		return r.taken(func(h kernel.Held) bool {
			other, ok := h.Admitted()
			return ok && other == a
		})
	}
	rules := r.iptables(admitted(func(a netip.Addr) bool {
		return slices.Contains(addrs, a) && !taken(a)
	}))
	return errors.Join(rules, r.conf.removeSources(ctx, r.Session, addrs, taken))
}

// interfaces removes the isolation rules of interfaces that no other attachment uses.
func (r *remover) interfaces(ifaces []string) error {
	var errs []error
	for _, iface := range ifaces {
		taken := func() bool {
			return r.taken(func(h kernel.Held) bool {
				other, ok := h.Isolated()
				return ok && other == iface
			})
		}
		for _, what := range isolated(iface) {
			if match := what.Match; match != nil {
				what.Match = func(rule kernel.IPTablesRule) bool { return match(rule) && !taken() }
			}
			errs = append(errs, r.iptables(what))
		}
	}
	return errors.Join(errs...)
}

func (r *remover) iptables(what kernel.IPTablesRemoval) error {
	return kernel.UnlessNoNFT(r.Host.Rules.RemoveIPTables(kernel.IPTables{
		Table: "filter", Removal: what,
	}))
}

// taken reports whether an attachment that is not being removed has a matching element. The caller
// holds the lock of the namespace, so concurrent ADDs are not missed. An unreadable ruleset counts
// as taken.
func (r *remover) taken(is func(kernel.Held) bool) bool {
	held, err := r.Host.Rules.Owned(kernel.Filtering)
	yes := err != nil || slices.ContainsFunc(held, func(h kernel.Held) bool {
		return !r.gone.Tag(h.Comment) && is(h)
	})
	r.shared = r.shared || yes
	return yes
}
