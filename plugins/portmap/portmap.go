package portmap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/internal/nft"
	core "github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Plugin is the definition of portmap.
var Plugin = plugin.Define[Config](plugin.Info{
	Name:         "portmap",
	About:        "forwards ports of the host to a container",
	Role:         plugin.RoleChained,
	Capabilities: []string{"portMappings"},
	Doc:          doc,
}, &chained.Plugin[Config]{
	Decorator: mapper{},
	NoPrev:    chained.NoPrev{Check: "Required prevResult missing"},
	Concerns:  []*kernel.Concern{nft.Publishing},
	Holds:     nft.Publisher,
	Needs:     needs,
})

type (
	mapper  struct{}
	session = chained.Session[Config]
)

func needs(c *Config) []probe.Feature {
	if c.backend() == nftablesBackend {
		return []probe.Feature{probe.NFT}
	}
	return nil
}

// Validate refuses what cannot be forwarded before anything is done. ADD says so in the words of the upstream plugin.
func (mapper) Validate(c *plugin.Call[Config]) error {
	err := c.Conf.validate()
	if err != nil && c.Command == cni.Add {
		err = fmt.Errorf("failed to parse config: %w", err)
	}
	return err
}

// Rules are those of nftables.
func (mapper) Rules(s *session) ([]kernel.Entry, error) {
	forwards, err := s.Conf.forwards()
	if err != nil || len(forwards) == 0 {
		return nil, err
	}
	addrs := containerAddrs(s)
	maps, err := mappings(forwards, addrs)
	if err != nil {
		return nil, err
	}
	backend, err := backendOf(s, addrs, maps)
	if err != nil {
		return nil, err
	}
	if backend == iptablesBackend {
		return loopbackGuard(s, maps)
	}
	p := nft.Publication{Mappings: maps, Hairpins: s.Conf.hairpins(addrs), Kin: s.SameContainer}
	if p.When4, p.When6, err = s.Conf.conditions(); err != nil {
		return nil, err
	}
	return nft.Publish(s.Tag, p)
}

// Apply makes what is not in the nftables ruleset. The result is the one before.
func (mapper) Apply(_ context.Context, s *session, _ *cni.Result) error {
	forwards, err := s.Conf.forwards()
	if err != nil || len(forwards) == 0 {
		return err
	}
	addrs := containerAddrs(s)
	maps, err := mappings(forwards, addrs)
	if err != nil {
		return err
	}
	if err := refuseReference(s, maps); err != nil {
		return err
	}
	backend, err := backendOf(s, addrs, maps)
	if err != nil {
		return err
	}
	if backend == iptablesBackend {
		if err := applyIPTables(s, forwards, addrs, maps); err != nil {
			return err
		}
	}
	if err := forgetStale(s, maps); err != nil {
		return err
	}
	if err := openLoopback(s, maps); err != nil {
		return err
	}
	return moved(s, backend, addrs)
}

// Verify looks for the rules of iptables; those of nftables have been found.
func (m mapper) Verify(ctx context.Context, s *session) error {
	forwards, err := s.Conf.forwards()
	if err != nil || len(forwards) == 0 {
		return err
	}
	addrs := containerAddrs(s)
	byIPTables, err := usesIPTables(s, forwards, addrs)
	if err != nil {
		return err
	}
	if !byIPTables {
		s.WarnOfMoves(ctx, func(ctx context.Context, dryRun bool) ([]core.Move, error) { return m.Move(ctx, s, dryRun) })
		return nil
	}
	return verifyIPTables(s, forwards, addrs)
}

// usesIPTables reports whether the backend of a call is iptables.
func usesIPTables(s *session, forwards []forward, addrs []netip.Prefix) (bool, error) {
	maps, err := mappings(forwards, addrs)
	if err != nil {
		return false, err
	}
	backend, err := backendOf(s, addrs, maps)
	return backend == iptablesBackend, err
}

// VerifyReference looks for what the reference plugin makes by default, which is iptables.
func (mapper) VerifyReference(_ context.Context, s *session) error {
	forwards, err := s.Conf.forwards()
	if err != nil {
		return err
	}
	return verifyIPTables(s, forwards, containerAddrs(s))
}

// Released forgets the flows to the container of the mappings that are gone.
func (mapper) Released(_ context.Context, s *session, held []kernel.Held) error {
	var gone []nft.Mapping
	for _, h := range held {
		if m, ok := nft.Published(h); ok {
			gone = append(gone, m)
		}
	}
	return forgetGone(s, gone)
}

// Remove removes what iptables has, and what the reference plugin has left.
func (mapper) Remove(_ context.Context, s *session, gone chained.Gone) error {
	return errors.Join(removeIPTables(s, gone), removeReference(s, gone))
}

// Status says whether the kernel, or the tool, can do what ADD needs.
func (mapper) Status(ctx context.Context, c *plugin.Call[Config]) error {
	switch c.Conf.backend() {
	case iptablesBackend:
		return iptablesAvailable(cni.CodeNotAvailable)
	case autoBackend:
		return core.NATStatus(ctx, nft.Publishing)
	}
	if err := kernel.Buildable(ctx, nft.Publishing); err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err).
			WithDetails("install a kernel built with CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_FIB_INET, " +
				"CONFIG_NF_CONNTRACK and CONFIG_NF_CONNTRACK_LABELS")
	}
	return nil
}

// containerAddrs are those that ports lead to: the first of each family of the container's interface, with prefix length.
func containerAddrs(s *session) (addrs []netip.Prefix) {
	var have [2]bool
	for _, ip := range s.PrevIPs() {
		if a := ip.Address; !have[familyOf(a.Addr())] {
			have[familyOf(a.Addr())] = true
			addrs = append(addrs, a)
		}
	}
	return addrs
}
