package portmap

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// backendOf returns the backend of a call: the backend that the configuration demands; otherwise
// ADD chooses by the state of the host, and other verbs use the backend that forwards for the
// attachment now.
func (c *Config) backendOf(s *chained.Session) (Backend, error) {
	if b := c.backend(); b != autoBackend {
		return b, nil
	}
	if c.chosen != "" {
		return c.chosen, nil
	}
	var err error
	if s.Command != cni.Add {
		c.chosen, err = c.inPlace(s)
	}
	if c.chosen == "" && err == nil {
		var choice kernel.NATChoice
		choice, err = c.choose(s)
		c.chosen = Backend(choice.Backend)
	}
	return c.chosen, err
}

// inPlace returns the backend that forwards for the attachment, or "" if neither does.
func (c *Config) inPlace(s *chained.Session) (Backend, error) {
	entries, err := kernel.Publish(s.Tag, kernel.Publication{
		Mappings: c.maps, Shares: s.SameContainer,
	})
	if err != nil || len(entries) == 0 {
		return "", err
	}
	entries = entries[:len(entries)-1] // the last one exists with iptables, too
	missing, err := s.Host.Rules.Missing(s.Tag, entries)
	if kernel.UnlessNoNFT(err) != nil {
		return "", err
	}
	if err == nil && len(missing) < len(entries) {
		return nftablesBackend, nil
	}
	if there, err := c.hasChain(s); there || err != nil {
		return iptablesBackend, err
	}
	return "", nil
}

// hasChain reports whether the container's chain of iptables has rules.
func (c *Config) hasChain(s *chained.Session) (bool, error) {
	for _, a := range c.addrs {
		rules, err := s.Host.Rules.OfNAT(familyOf(a.Addr()), ownChain(s.Name, s.ContainerID))
		if len(rules) > 0 || err != nil {
			return len(rules) > 0, err
		}
	}
	return false, nil
}

// choose selects the backend by the state of the host.
func (c *Config) choose(s *chained.Session) (kernel.NATChoice, error) {
	if reason := ofNerdctl(c, s.Env, networkDir); reason != "" &&
		kernel.IPTablesAvailable() == nil {
		choice := kernel.NATChoice{Backend: kernel.NATByIPTables, Reason: reason}
		s.LogNAT("backend", choice)
		return choice, nil
	}
	return s.ChooseNAT("backend", kernel.Publishing, c.queries(s)...)
}

// Move moves the ports to iptables if the host now needs it. CHECK accepts either backend.
func (c *Config) Move(_ context.Context, s *chained.Session, dryRun bool) ([]session.Move, error) {
	if ok, err := c.prepare(s); !ok || c.backend() != autoBackend {
		return nil, err
	}
	if now, err := c.backendOf(s); now != nftablesBackend || err != nil {
		return nil, err
	}
	choice, err := c.choose(s)
	if err != nil || choice.Backend != kernel.NATByIPTables {
		return nil, err
	}
	moves := []session.Move{{What: "host ports", Backend: choice.Backend, Reason: choice.Reason}}
	if dryRun {
		return moves, nil
	}
	if err := c.applyIPTables(s); err != nil {
		return nil, err
	}
	guard, err := c.loopbackGuard(s)
	if err != nil {
		return nil, err
	}
	// releases the ports
	if err := s.Host.Rules.Apply("guard the loopback addresses", s.Tag, guard); err != nil {
		return nil, err
	}
	return moves, c.moved(s, iptablesBackend)
}

// Advise reports networks that use iptables on this host, for any port that the runtime may
// request.
func (c *Config) Advise(ctx context.Context, call *plugin.Call) ([]string, error) {
	if c.backend() != autoBackend {
		return nil, nil
	}
	if reason := ofNerdctl(c, call.Env, networkDir); reason != "" {
		return []string{"uses iptables: " + reason}, nil
	}
	all := kernel.NATTraffic{FromHost: true, IsLocal: func(netip.Addr) bool { return true }}
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		all.Ports = append(all.Ports, kernel.PortOf(kernel.PortMapping{
			Protocol: p, First: 1, Last: maxPort,
		}))
	}
	var list []kernel.NATQuery
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		list = append(list, forPublished(f, all)...)
	}
	return session.AdviseNAT(ctx, kernel.Publishing, list...)
}

// forPublished returns queries for packets to published ports.
func forPublished(f kernel.Family, t kernel.NATTraffic) (list []kernel.NATQuery) {
	for _, base := range []string{"PREROUTING", "OUTPUT"} {
		list = append(list, kernel.NATQuery{
			Family: f, NATPath: kernel.NATPath{Base: base, Traffic: t, Until: hostPorts},
		})
	}
	return list
}

// queries returns queries for rules that decide about the published ports, and about masquerading
// of hairpin connections.
func (c *Config) queries(s *chained.Session) (list []kernel.NATQuery) {
	isLocal := func(a netip.Addr) bool {
		local, err := s.Host.Addrs.IsLocal(a)
		return local || err != nil
	}
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		published := kernel.NATTraffic{IsLocal: isLocal, FromHost: true}
		for _, m := range c.maps {
			if familyOf(m.To.Addr()) == f {
				published.Ports = append(published.Ports, kernel.PortOf(m))
			}
		}
		if len(published.Ports) == 0 {
			continue
		}
		list = append(list, forPublished(f, published)...)
		for _, h := range c.hairpins() {
			if familyOf(h.To) != f {
				continue
			}
			list = append(list, kernel.NATQuery{Family: f, NATPath: kernel.NATPath{
				Base: "POSTROUTING", Until: masqMark, Inserted: true,
				Traffic: kernel.NATTraffic{
					From: []netip.Prefix{h.From}, FromHost: true,
					To: []netip.Prefix{netip.PrefixFrom(h.To, h.To.BitLen())},
				},
			}})
		}
	}
	return list
}

// moved removes the rules that an earlier ADD of the attachment made with the other backend.
func (c *Config) moved(s *chained.Session, backend Backend) error {
	if backend == iptablesBackend {
		return kernel.UnlessNoNFT(releaseOthers(s))
	}
	if there, err := c.hasChain(s); !there {
		return err
	}
	return removeChains(s, leftovers(s.Name, s.ContainerID))
}

// releaseOthers removes the forwarding elements of the attachment. The guard of the loopback
// addresses stays.
func releaseOthers(s *chained.Session) error {
	held, err := s.Host.Rules.Owned(kernel.Publishing)
	if err != nil {
		return err
	}
	forwards := func(h kernel.Held) bool {
		_, ok := kernel.Published(h)
		return ok && h.Comment == s.Tag
	}
	if !slices.ContainsFunc(held, forwards) {
		return nil
	}
	_, err = s.Host.Rules.Remove(kernel.Publishing, func(tag string) bool { return tag == s.Tag })
	return err
}

// removeChains removes iptables chains and rules of attachments.
func removeChains(s *chained.Session, removals []kernel.IPTablesRemoval) error {
	var errs []error
	for _, r := range removals {
		errs = append(errs, kernel.UnlessNoNFT(s.Host.Rules.RemoveIPTables(kernel.IPTables{
			Table: "nat", Removal: r,
		})))
	}
	return errors.Join(errs...)
}
