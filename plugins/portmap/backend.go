package portmap

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	core "github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// backendOf returns the backend of a call: the one that the configuration demands; else, on ADD, the
// one that suits the host, and otherwise the one that forwards for the attachment now.
func backendOf(s *session, addrs []netip.Prefix, maps []nft.Mapping) (Backend, error) {
	if b := s.Conf.backend(); b != autoBackend {
		return b, nil
	}
	if s.Conf.chosen != "" {
		return s.Conf.chosen, nil
	}
	var err error
	if s.Command != cni.Add {
		s.Conf.chosen, err = inPlace(s, addrs, maps)
	}
	if s.Conf.chosen == "" && err == nil {
		var choice kernel.NATChoice
		choice, err = choose(s, addrs, maps)
		s.Conf.chosen = Backend(choice.Backend)
	}
	return s.Conf.chosen, err
}

// inPlace returns the backend that forwards for the attachment, "" if none does.
func inPlace(s *session, addrs []netip.Prefix, maps []nft.Mapping) (Backend, error) {
	entries, err := nft.Publish(s.Tag, nft.Publication{Mappings: maps, Kin: s.SameContainer})
	if err != nil || len(entries) == 0 {
		return "", err
	}
	entries = entries[:len(entries)-1] // the last one is there with iptables, too
	missing, err := s.Host.Missing(s.Tag, entries)
	if kernel.UnlessNoNFT(err) != nil {
		return "", err
	}
	if err == nil && len(missing) < len(entries) {
		return nftablesBackend, nil
	}
	if there, err := hasChain(s, addrs); there || err != nil {
		return iptablesBackend, err
	}
	return "", nil
}

// hasChain reports whether the container's chain of iptables has rules.
func hasChain(s *session, addrs []netip.Prefix) (bool, error) {
	for _, a := range addrs {
		rules, err := s.Host.NATRules(familyOf(a.Addr()), ownChain(s.Name, s.ContainerID))
		if len(rules) > 0 || err != nil {
			return len(rules) > 0, err
		}
	}
	return false, nil
}

// choose chooses the backend by the state of the host.
func choose(s *session, addrs []netip.Prefix, maps []nft.Mapping) (kernel.NATChoice, error) {
	if reason := ofNerdctl(s.Conf, s.Env, networkDir); reason != "" && kernel.IPTablesAvailable() == nil {
		choice := kernel.NATChoice{Backend: kernel.NATByIPTables, Reason: reason}
		s.LogNAT("backend", choice)
		return choice, nil
	}
	return s.ChooseNAT("backend", nft.Publishing, queries(s, addrs, maps)...)
}

// Move forwards the ports by iptables if the host asks for that by now. CHECK accepts either.
func (mapper) Move(_ context.Context, s *session, dryRun bool) ([]core.Move, error) {
	forwards, err := s.Conf.forwards()
	if err != nil || len(forwards) == 0 || s.Conf.backend() != autoBackend {
		return nil, err
	}
	addrs := containerAddrs(s)
	maps, err := mappings(forwards, addrs)
	if err != nil {
		return nil, err
	}
	if now, err := backendOf(s, addrs, maps); now != nftablesBackend || err != nil {
		return nil, err
	}
	choice, err := choose(s, addrs, maps)
	if err != nil || choice.Backend != kernel.NATByIPTables {
		return nil, err
	}
	moves := []core.Move{{What: "host ports", Backend: choice.Backend, Reason: choice.Reason}}
	if dryRun {
		return moves, nil
	}
	if err := applyIPTables(s, forwards, addrs, maps); err != nil {
		return nil, err
	}
	guard, err := loopbackGuard(s, maps)
	if err != nil {
		return nil, err
	}
	if err := s.Host.Claim("guard the loopback addresses", s.Tag, guard); err != nil { // releases the ports
		return nil, err
	}
	return moves, moved(s, iptablesBackend, addrs)
}

// Advise says where ports are forwarded by iptables, whichever ports the runtime asks for.
func (mapper) Advise(ctx context.Context, c *plugin.Call[Config]) ([]string, error) {
	if c.Conf.backend() != autoBackend {
		return nil, nil
	}
	if reason := ofNerdctl(c.Conf, c.Env, networkDir); reason != "" {
		return []string{"uses iptables: " + reason}, nil
	}
	all := hostnat.Traffic{FromHost: true, IsLocal: func(netip.Addr) bool { return true }}
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		all.Ports = append(all.Ports, hostnat.Port{Protocol: p, PortRange: hostnat.PortRange{First: 1, Last: maxPort}})
	}
	var list []kernel.NATQuery
	for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		list = append(list, forPublished(f, all)...)
	}
	return core.AdviseNAT(ctx, nft.Publishing, list...)
}

// forPublished are the queries for the packets to published ports.
func forPublished(f iptables.Family, t hostnat.Traffic) (list []kernel.NATQuery) {
	for _, base := range []string{"PREROUTING", "OUTPUT"} {
		list = append(list, kernel.NATQuery{Family: f, Query: hostnat.Query{Base: base, Traffic: t, Until: hostPorts}})
	}
	return list
}

// queries ask for rules that decide about the published ports, and about masquerading of hairpin
// connections.
func queries(s *session, addrs []netip.Prefix, maps []nft.Mapping) (list []kernel.NATQuery) {
	isLocal := func(a netip.Addr) bool {
		local, err := s.Host.IsLocal(a)
		return local || err != nil
	}
	for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		published := hostnat.Traffic{IsLocal: isLocal, FromHost: true}
		for _, m := range maps {
			if familyOf(m.To.Addr()) == f {
				published.Ports = append(published.Ports, hostnat.Port{
					Protocol: m.Protocol, Host: m.Host, PortRange: hostnat.PortRange{First: m.First, Last: m.Last},
				})
			}
		}
		if len(published.Ports) == 0 {
			continue
		}
		list = append(list, forPublished(f, published)...)
		for _, h := range s.Conf.hairpins(addrs) {
			if familyOf(h.To) != f {
				continue
			}
			list = append(list, kernel.NATQuery{Family: f, Query: hostnat.Query{
				Base: "POSTROUTING", Until: masqMark, Inserted: true,
				Traffic: hostnat.Traffic{
					From: []netip.Prefix{h.From}, To: []netip.Prefix{netip.PrefixFrom(h.To, h.To.BitLen())}, FromHost: true,
				},
			}})
		}
	}
	return list
}

// moved removes what an earlier ADD of the attachment has made with the other backend.
func moved(s *session, backend Backend, addrs []netip.Prefix) error {
	if backend == iptablesBackend {
		return kernel.UnlessNoNFT(releaseOthers(s))
	}
	if there, err := hasChain(s, addrs); !there {
		return err
	}
	return removeChains(s, leftovers(s.Name, s.ContainerID))
}

// releaseOthers removes the entries of the attachment that forward. The guard of the loopback
// addresses stays.
func releaseOthers(s *session) error {
	held, err := s.Host.Owned(nft.Publishing)
	if err != nil {
		return err
	}
	forwards := func(h kernel.Held) bool { _, ok := nft.Published(h); return ok && h.Comment == s.Tag }
	if !slices.ContainsFunc(held, forwards) {
		return nil
	}
	_, err = s.Host.Release(nft.Publishing, func(tag string) bool { return tag == s.Tag })
	return err
}

// removeChains removes what iptables has of attachments.
func removeChains(s *session, removals []iptables.Removal) error {
	var errs []error
	for _, r := range removals {
		errs = append(errs, kernel.UnlessNoNFT(s.Host.RemoveIPTables(kernel.IPTables{Table: "nat", Removal: r})))
	}
	return errors.Join(errs...)
}
