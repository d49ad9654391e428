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

// referenceTables are the tables of upstream's backend nftables. Their rules name the container,
// but not the network.
var referenceTables = []kernel.Table{
	{Family: kernel.TableIPv4, Name: "cni_hostport"},
	{Family: kernel.TableIPv6, Name: "cni_hostport"},
}

const referenceMappings = "hostports"

// removeReference removes the rules that the upstream plugin made for a container: rules for the
// addresses of the attachment if they are known, otherwise all. GC leaves them, because they do not
// name their network.
func removeReference(s *chained.Session, gone chained.Gone) error {
	if gone.All() {
		return nil
	}
	mine := func(netip.Addr) bool { return true }
	if s.Prev != nil && len(s.Prev.IPs) > 0 {
		mine = func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Prev.IPs, func(ip cni.IP) bool {
				return ip.Address.Addr() == a
			})
		}
	}
	return pruneReference(s, gone.One.Container, mine)
}

// pruneReference removes the upstream plugin's rules for a container and some of its addresses.
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

// refuseReference refuses ports that another existing container holds with the upstream plugin or
// with backend iptables, because those rules come first. Without such rules it costs one query for
// each family and backend.
func (c *Config) refuseReference(s *chained.Session) error {
	free := []string{s.ContainerID} // containers without conflicts
	for i, t := range referenceTables {
		rules, err := s.Host.Rules.Of(t, referenceMappings)
		if kernel.UnlessNoNFT(err) != nil {
			return err
		}
		if err := c.refuseIPTables(s, kernel.Family(i)); err != nil {
			return err
		}
		for _, r := range rules {
			theirs := kernel.PortMapping{Protocol: r.Protocol, Host: r.Dest, First: r.Port,
				Last: r.Port, To: netip.AddrPortFrom(families[i], 0)}
			if r.Port == 0 || slices.Contains(free, r.Comment) {
				continue
			}
			if i := slices.IndexFunc(c.maps, theirs.Overlaps); i < 0 {
				continue
			} else if gone, err := ofReference(s, r).takeOver(s); !gone {
				return errors.Join(chained.InUse(c.maps[i].String(), r.Comment), err)
			}
			free = append(free, r.Comment)
		}
	}
	return nil
}

// families has an address of each family, in the order of referenceTables.
var families = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// foreign is a rule outside the rule set of host ports that leads a port to a container.
type foreign struct {
	holder string                      // describes the container
	to     netip.Addr                  // the container's address; not valid if unknown
	of     func(a cni.Attachment) bool // reports whether an attachment belongs to the container
	remove func() error                // removes the rule and other rules of the container
}

// takeOver removes the rule if its container no longer exists, and reports whether it did.
func (f foreign) takeOver(s *chained.Session) (bool, error) {
	if !f.to.IsValid() {
		return false, nil
	}
	gone, err := s.Vanished(func(alias string) bool {
		a, ok := session.Tagged(alias)
		return ok && f.of(a)
	}, f.to)
	if !gone {
		return false, err
	}
	s.LogTakeOver(f.holder, f.to)
	return true, f.remove()
}

// ofReference returns a mapping in a table of upstream's backend nftables.
func ofReference(s *chained.Session, r kernel.Rule) foreign {
	return foreign{
		holder: r.Comment,
		to:     r.DNAT.Addr(),
		of:     func(a cni.Attachment) bool { return a.Container == r.Comment },
		remove: func() error {
			return pruneReference(s, r.Comment, func(a netip.Addr) bool {
				return a == r.DNAT.Addr()
			})
		},
	}
}

// refuseIPTables refuses ports that iptables chains of other containers forward, in either variant.
// It removes chains of containers that no longer exist.
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
		if e.Chain == "" || e.Chain == ownChain(s.Name, s.ContainerID) ||
			strings.HasSuffix(e.Comment, commentSuffix(s.ContainerID)) {
			continue
		}
		rules, err := tables.Rules(e.Chain)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(c.maps, func(m kernel.PortMapping) bool {
			return familyOf(m.To.Addr()) == f &&
				slices.ContainsFunc(rules, func(r kernel.NATRule) bool { return leadsOn(r, m) })
		})
		if i < 0 {
			continue
		}
		if gone, err := takeOverChain(s, e, rules); !gone {
			return errors.Join(chained.InUse(c.maps[i].String(), e.Comment), err)
		}
	}
	return nil
}

// takeOverChain removes the chain that an entry jumps to, in both variants, if its container no
// longer exists, and reports whether it did. rules are the rules of the chain.
func takeOverChain(s *chained.Session, e kernel.NATRule, rules []kernel.NATRule) (bool, error) {
	i := slices.IndexFunc(rules, func(r kernel.NATRule) bool { return r.To.IsValid() })
	if i < 0 {
		return false, nil
	}
	return foreign{
		holder: e.Comment,
		to:     rules[i].To.Addr(),
		of:     func(a cni.Attachment) bool { return ownChain(a.Network, a.Container) == e.Chain },
		remove: func() error {
			return s.Host.Rules.RemoveIPTables(kernel.IPTables{
				Table: "nat", Removal: kernel.IPTablesRemoval{In: hostPorts, Target: e.Chain},
			})
		},
	}.takeOver(s)
}

// leadsOn reports whether a rule of a container's chain matches packets of a mapping.
func leadsOn(r kernel.NATRule, m kernel.PortMapping) bool {
	return r.Target == "DNAT" && r.Covers(kernel.PortOf(m), func(netip.Addr) bool { return true })
}
