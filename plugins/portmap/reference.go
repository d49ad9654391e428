package portmap

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// The tables of the reference plugin's backend nftables, where each rule names its container, but not the network.
var referenceTables = []kernel.Table{{Family: kernel.TableIPv4, Name: "cni_hostport"}, {Family: kernel.TableIPv6, Name: "cni_hostport"}}

const referenceMappings = "hostports"

// removeReference removes what the reference plugin has left for a container: what leads to the addresses of the attachment
// if they are known. GC leaves all of it, as it cannot tell to which network it belongs.
func removeReference(s *chained.Session, gone chained.Gone) error {
	if gone.All() {
		return nil
	}
	mine := func(netip.Addr) bool { return true }
	if s.Prev != nil && len(s.Prev.IPs) > 0 {
		mine = func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Prev.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == a })
		}
	}
	return pruneReference(s, gone.One.Container, mine)
}

// pruneReference removes the rules of the upstream plugin for a container and some of its addresses.
func pruneReference(s *chained.Session, container string, mine func(netip.Addr) bool) error {
	var errs []error
	for _, t := range referenceTables {
		for _, chain := range []string{referenceMappings, "hostip_hostports", "masquerading"} {
			errs = append(errs, kernel.UnlessNoNFT(s.Host.Rules.Prune(kernel.Pruning{
				Table: t, Base: chain,
				Match: func(r kernel.Rule) bool {
					to := r.DNAT.Addr()
					if !to.IsValid() {
						to = r.Dest // of a masquerading rule
					}
					return r.Comment == container && mine(to)
				},
			})))
		}
	}
	return errors.Join(errs...)
}

// refuseReference refuses ports that the upstream plugin, or the backend iptables, has given to another
// container that exists: its rules come first. Where there are none it takes a question for each family and backend.
func (c *Config) refuseReference(s *chained.Session) error {
	free := []string{s.ContainerID} // whose rules are no conflict, or not any more
	for i, t := range referenceTables {
		rules, err := referenceRules(s, t)
		if err != nil {
			return err
		}
		if err := c.refuseIPTables(s, kernel.Family(i)); err != nil {
			return err
		}
		for _, r := range rules {
			theirs := kernel.PortMapping{Protocol: r.Protocol, Host: r.Dest, First: r.Port, Last: r.Port, To: netip.AddrPortFrom(families[i], 0)}
			if r.Port == 0 || slices.Contains(free, r.Comment) {
				continue
			}
			if i := slices.IndexFunc(c.maps, theirs.Overlaps); i < 0 {
				continue
			} else if gone, err := r.takeOver(s); !gone {
				return errors.Join(chained.InUse(c.maps[i].String(), r.Comment), err)
			}
			free = append(free, r.Comment)
		}
	}
	return nil
}

// families has an address of each of the referenceTables.
var families = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// foreign is a rule that leads a port to a container. It is not an element of the set of host ports.
type foreign struct {
	kernel.Rule
	of     func(a cni.Attachment) bool // whether an attachment is the container's
	remove func() error                // removes the rule, and others of the container
}

// takeOver removes the rule if its container no longer exists, and reports whether it did.
func (f foreign) takeOver(s *chained.Session) (bool, error) {
	if !f.DNAT.IsValid() {
		return false, nil
	}
	gone, err := s.Vanished(func(alias string) bool {
		a, ok := session.Tagged(alias)
		return ok && f.of(a)
	}, f.DNAT.Addr())
	if !gone {
		return false, err
	}
	s.LogTakeOver(f.Comment, f.DNAT.Addr())
	return true, f.remove()
}

// referenceRules lists the mappings of the upstream plugin in a table of its backend nftables.
func referenceRules(s *chained.Session, t kernel.Table) (all []foreign, err error) {
	rules, err := s.Host.Rules.Of(t, referenceMappings)
	for _, r := range rules {
		all = append(all, foreign{
			Rule: r,
			of:   func(a cni.Attachment) bool { return a.Container == r.Comment },
			remove: func() error {
				return pruneReference(s, r.Comment, func(a netip.Addr) bool { return a == r.DNAT.Addr() })
			},
		})
	}
	return all, kernel.UnlessNoNFT(err)
}

// refuseIPTables refuses ports that chains of iptables of other containers lead on, in either variant. Chains of containers
// that no longer exist are removed.
func (c *Config) refuseIPTables(s *chained.Session, f kernel.Family) error {
	tables, err := s.Host.Rules.NATTables(f)
	if err != nil {
		return err
	}
	defer tables.Close()
	entries, err := tables.Rules(hostPorts)
	if err != nil {
		return kernel.UnlessNoNFT(err)
	}
	for _, e := range entries {
		if e.Chain == "" || e.Chain == ownChain(s.Name, s.ContainerID) || strings.HasSuffix(e.Comment, commentSuffix(s.ContainerID)) {
			continue
		}
		rules, err := tables.Rules(e.Chain)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(c.maps, func(m kernel.PortMapping) bool {
			return familyOf(m.To.Addr()) == f && slices.ContainsFunc(rules, func(r kernel.NATRule) bool { return leadsOn(r, m) })
		})
		if i < 0 {
			continue
		}
		if gone, err := takeOverChain(s, f, e); !gone {
			return errors.Join(chained.InUse(c.maps[i].String(), e.Comment), err)
		}
	}
	return nil
}

// takeOverChain removes the chain that an entry leads to if its container no longer exists, and reports whether it did.
func takeOverChain(s *chained.Session, f kernel.Family, e kernel.NATRule) (bool, error) {
	rules, err := s.Host.Rules.Of(kernel.Table{Family: referenceTables[f].Family, Name: "nat"}, e.Chain)
	for _, r := range rules {
		if !r.DNAT.IsValid() {
			continue
		}
		r.Comment = e.Comment
		chain := foreign{
			Rule: r,
			of:   func(a cni.Attachment) bool { return ownChain(a.Network, a.Container) == e.Chain },
			remove: func() error {
				return s.Host.Rules.RemoveIPTables(kernel.IPTables{Table: "nat", Removal: kernel.IPTablesRemoval{In: hostPorts, Target: e.Chain}})
			},
		}
		return chain.takeOver(s)
	}
	return false, kernel.UnlessNoNFT(err)
}

// leadsOn reports whether a rule of a container's chain takes packets that a mapping is about.
func leadsOn(r kernel.NATRule, m kernel.PortMapping) bool {
	return r.Target == "DNAT" && r.Covers(kernel.PortOf(m), func(netip.Addr) bool { return true })
}
