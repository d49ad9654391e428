package attach

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// The reference plugins masquerade by chains of iptables or by a table of nftables. The first is what the backend
// iptables makes here too; both are checked, and removed by DEL and GC, so that running containers survive a change from
// one to the other.

// referenceTable and referenceChain hold a rule for each address.
var referenceTable = kernel.Table{Family: kernel.TableINet, Name: "cni_plugins_masquerade"}

const referenceChain = "masq_checks"

// sha512Digits returns the first n hexadecimal digits of a hash.
func sha512Digits(n int, s string) string {
	sum := sha512.Sum512([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

// iptablesMasquerade is the masquerading of a container's attachments to a network by iptables: the interface is part of
// neither chain nor comment.
func iptablesMasquerade(network, container string) kernel.IPTablesMasquerade {
	return kernel.IPTablesMasquerade{
		Chain:   iptablesPrefix + sha512Digits(24, network+container),
		Comment: fmt.Sprintf("name: %q id: %q", network, container),
	}
}

const iptablesPrefix = "CNI-"

// iptablesJumps are the rules that lead to a chain of iptablesMasquerade, "" for any.
func iptablesJumps(chain string) kernel.IPTables {
	return kernel.IPTables{Table: "nat", Removal: kernel.IPTablesRemoval{In: "POSTROUTING", Target: chain}}
}

// iptablesContainer returns the container that a comment of iptablesMasquerade names, if it is one of this network.
func iptablesContainer(network, comment string) (container string, ok bool) {
	rest, ok := strings.CutPrefix(comment, fmt.Sprintf("name: %q id: \"", network))
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, `"`)
}

// What a comment in referenceChain begins with.

func referenceNetwork(network string) string { return sha512Digits(16, network) + "-" }

func referenceOwner(a cni.Attachment) string {
	return referenceNetwork(a.Network) + sha512Digits(16, a.IfName+":"+a.Container)
}

// goneReference reports whether a comment in referenceChain names an attachment that is gone.
func goneReference(g Gone, comment string) bool {
	if !g.All() {
		return strings.HasPrefix(comment, referenceOwner(g.One))
	}
	if !strings.HasPrefix(comment, referenceNetwork(g.Network)) {
		return false
	}
	for _, a := range g.Valid {
		if strings.HasPrefix(comment, referenceOwner(a)) {
			return false
		}
	}
	return true
}

// removeReference removes the masquerading of the reference plugins, and that of the backend iptables.
func (s *Session) removeReference(g Gone) error {
	err := s.Host.Rules.Prune(kernel.Pruning{
		Table: referenceTable, Base: referenceChain,
		Match: func(r kernel.Rule) bool { return goneReference(g, r.Comment) },
	})
	return errors.Join(kernel.UnlessNoNFT(err), s.removeIPTables(g))
}

// removeIPTables removes the masquerading of the backend iptables, here or in the upstream plugins.
func (s *Session) removeIPTables(g Gone) error {
	what := iptablesJumps("")
	if g.All() {
		what.Match = func(r kernel.IPTablesRule) bool {
			container, ok := iptablesContainer(g.Network, r.Comment)
			return ok && strings.HasPrefix(r.Target, iptablesPrefix) && g.Container(container)
		}
		return kernel.UnlessNoNFT(s.Host.Rules.RemoveIPTables(what))
	}
	what.Target = iptablesMasquerade(g.One.Network, g.One.Container).Chain
	var failed error
	mine := sync.OnceValue(func() func(netip.Addr) bool { // only asked if there is such a chain
		m, err := s.ownSources()
		failed = err
		return m
	})
	what.Match = func(r kernel.IPTablesRule) bool { return mine()(r.Source) }
	return errors.Join(kernel.UnlessNoNFT(s.Host.Rules.RemoveIPTables(what)), failed)
}

// ownSources tells which of the addresses that a chain masquerades are those of this attachment: another interface of the
// container may be on the same network. They are those of the previous result, and those that no other interface has.
// Without namespace and result they are all.
func (s *Session) ownSources() (mine func(netip.Addr) bool, err error) {
	own, others := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	if s.Prev != nil {
		for _, ip := range s.Prev.IPs {
			own[ip.Address.Addr()] = true
			own[ip.Address.Masked().Addr()] = true // as very old versions of the reference plugins have it
		}
	}
	if s.Sandbox != nil {
		err = s.otherAddresses(others)
	}
	guess := s.Sandbox != nil || len(own) == 0
	return func(a netip.Addr) bool { return own[a] || guess && !others[a] }, err
}

// otherAddresses collects the addresses of other interfaces of the container.
func (s *Session) otherAddresses(others map[netip.Addr]bool) error {
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Name == s.IfName {
			continue
		}
		addrs, err := s.Sandbox.Addrs.Of(l)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			others[a.Addr()] = true
		}
	}
	return nil
}

// referenceMasquerades lists the addresses that one of the reference plugins, or the backend iptables, masquerades for
// this attachment.
func (s *Session) referenceMasquerades() ([]netip.Addr, error) {
	chain := iptablesMasquerade(s.Name, s.ContainerID).Chain
	jumps, err := s.Host.Rules.OfIPTables(iptablesJumps(chain))
	if err != nil {
		return nil, err
	}
	rules, err := s.Host.Rules.Of(referenceTable, referenceChain)
	if err := kernel.UnlessNoNFT(err); err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, j := range jumps {
		addrs = append(addrs, j.Source)
	}
	for _, r := range rules {
		if strings.HasPrefix(r.Comment, referenceOwner(s.Attachment())) {
			addrs = append(addrs, r.Source)
		}
	}
	return addrs, nil
}
