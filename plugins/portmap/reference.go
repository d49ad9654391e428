package portmap

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/nft"
)

// The tables of the reference plugin's backend nftables, where each rule names its container, but not the network.
var referenceTables = []kernel.Table{{Family: nft.IPv4, Name: "cni_hostport"}, {Family: nft.IPv6, Name: "cni_hostport"}}

const referenceMappings = "hostports"

// removeReference removes what the reference plugin has left for a container: what leads to the addresses of the attachment
// if they are known. GC leaves all of it, as it cannot tell to which network it belongs.
func removeReference(s *session, gone chained.Gone) error {
	if gone.All() {
		return nil
	}
	mine := func(netip.Addr) bool { return true }
	if s.Prev != nil && len(s.Prev.IPs) > 0 {
		mine = func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Prev.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == a })
		}
	}
	var errs []error
	for _, t := range referenceTables {
		for _, chain := range []string{referenceMappings, "hostip_hostports", "masquerading"} {
			errs = append(errs, kernel.UnlessNoNFT(s.Host.Prune(kernel.Pruning{
				Table: t, Base: chain,
				Match: func(r kernel.Rule) bool {
					to := r.DNAT.Addr()
					if !to.IsValid() {
						to = r.Dest // of a masquerading rule
					}
					return r.Comment == gone.One.Container && mine(to)
				},
			})))
		}
	}
	return errors.Join(errs...)
}

// refuseReference refuses ports that the reference plugin, or the backend iptables, has given to another container: its
// rules come first. Where there are none it takes a question for each family and backend.
func refuseReference(s *session, maps []nft.Mapping) error {
	for i, t := range referenceTables {
		rules, err := s.Host.Rules(t, referenceMappings)
		if err := kernel.UnlessNoNFT(err); err != nil {
			return err
		}
		chains, err := iptablesChains(s, kernel.Table{Family: t.Family, Name: "nat"})
		if err != nil {
			return err
		}
		for _, r := range slices.Concat(rules, chains) {
			theirs := nft.Mapping{Protocol: r.Protocol, Host: r.Dest, First: r.Port, Last: r.Port, To: netip.AddrPortFrom(families[i], 0)}
			if r.Port == 0 || r.Comment == s.ContainerID {
				continue
			}
			for _, m := range maps {
				if m.Overlaps(theirs) {
					return chained.Taken(m.String(), r.Comment)
				}
			}
		}
	}
	return nil
}

// families has an address of each of the referenceTables.
var families = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// iptablesChains lists the rules of the chains of other containers, each with the comment of what leads to it.
func iptablesChains(s *session, t kernel.Table) (all []kernel.Rule, err error) {
	entries, err := s.Host.Rules(t, hostPorts)
	for _, e := range entries {
		if e.Jump == "" || e.Jump == ownChain(s.Name, s.ContainerID) || strings.HasSuffix(e.Comment, commentSuffix(s.ContainerID)) {
			continue
		}
		rules, err := s.Host.Rules(t, e.Jump)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			if r.Verdict == "DNAT" {
				r.Comment = e.Comment
				all = append(all, r)
			}
		}
	}
	return all, kernel.UnlessNoNFT(err)
}
