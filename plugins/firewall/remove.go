package firewall

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Remove removes what there is of attachments that are gone, in iptables and firewalld first: the entries say whose that is,
// so that they are needed until it is gone. What the reference plugin has made for addresses goes as far as the previous
// result tells of them.
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
	// Those whom something was left to can have left it to this one, going at the same time: the last to give up its entries
	// sees that nobody has any.
	return errors.Join(err, r.addresses(ctx, addrs), r.interfaces(ifaces))
}

type remover struct {
	*chained.Session
	conf   *Config
	gone   chained.Gone
	shared bool // something was left, as somebody else has an entry for it
}

// addresses removes rules and sources of addresses that are nobody else's.
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
	rules := r.iptables(admitted(func(a netip.Addr) bool { return slices.Contains(addrs, a) && !taken(a) }))
	return errors.Join(rules, r.conf.removeSources(ctx, r.Session, addrs, taken))
}

// interfaces removes the rules of interfaces that nobody else is behind.
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
	return kernel.UnlessNoNFT(r.Host.Rules.RemoveIPTables(kernel.IPTables{Table: "filter", Removal: what}))
}

// taken reports whether somebody who is not gone has an entry. It is asked with the lock of the namespace held, so that
// nobody who comes at the same time is overlooked. What cannot be told is taken.
func (r *remover) taken(is func(kernel.Held) bool) bool {
	held, err := r.Host.Rules.Owned(kernel.Filtering)
	yes := err != nil || slices.ContainsFunc(held, func(h kernel.Held) bool { return !r.gone.Tag(h.Comment) && is(h) })
	r.shared = r.shared || yes
	return yes
}
