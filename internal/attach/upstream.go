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

// The upstream plugins masquerade by chains of iptables or by a table of nftables. Tenon's backend
// iptables creates the same chains. CHECK accepts both, and DEL and GC remove both, so that running
// containers survive a change from one implementation to the other.

// upstreamTable and upstreamChain hold one rule per address.
var upstreamTable = kernel.Table{Family: kernel.TableINet, Name: "cni_plugins_masquerade"}

const upstreamChain = "masq_checks"

// sha512Digits returns the first n hexadecimal digits of a hash.
func sha512Digits(n int, s string) string {
	sum := sha512.Sum512([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

// iptablesMasquerade returns the iptables rules that masquerade a container in a network. Neither
// chain nor comment contains the interface.
func iptablesMasquerade(network, container string) kernel.IPTablesMasquerade {
	return kernel.IPTablesMasquerade{
		Chain:   iptablesPrefix + sha512Digits(24, network+container),
		Comment: fmt.Sprintf("name: %q id: %q", network, container),
	}
}

const iptablesPrefix = "CNI-"

// iptablesJumps selects the jumps to a chain of iptablesMasquerade; "" selects the jumps to any.
func iptablesJumps(chain string) kernel.IPTables {
	return kernel.IPTables{Table: "nat", Removal: kernel.IPTablesRemoval{In: "POSTROUTING", Target: chain}}
}

// iptablesContainer returns the container in a comment of iptablesMasquerade, if the comment names
// this network.
func iptablesContainer(network, comment string) (container string, ok bool) {
	rest, ok := strings.CutPrefix(comment, fmt.Sprintf("name: %q id: \"", network))
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, `"`)
}

// The prefixes of comments in upstreamChain.

func upstreamNetwork(network string) string { return sha512Digits(16, network) + "-" }

func upstreamOwner(a cni.Attachment) string {
	return upstreamNetwork(a.Network) + sha512Digits(16, a.IfName+":"+a.Container)
}

// goneUpstream reports whether a comment in upstreamChain names an attachment that no longer
// exists.
func goneUpstream(g Gone, comment string) bool {
	if !g.All() {
		return strings.HasPrefix(comment, upstreamOwner(g.One))
	}
	if !strings.HasPrefix(comment, upstreamNetwork(g.Network)) {
		return false
	}
	for _, a := range g.Valid {
		if strings.HasPrefix(comment, upstreamOwner(a)) {
			return false
		}
	}
	return true
}

// removeUpstream removes masquerading by the upstream plugins and by the backend iptables.
func (s *Session) removeUpstream(g Gone) error {
	err := s.Host.Rules.Prune(kernel.Pruning{
		Table: upstreamTable, Base: upstreamChain,
		Match: func(r kernel.Rule) bool { return goneUpstream(g, r.Comment) },
	})
	return errors.Join(kernel.UnlessNoNFT(err), s.removeIPTables(g))
}

// removeIPTables removes masquerading by iptables, whether Tenon or an upstream plugin set it up.
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
	mine := sync.OnceValue(func() func(netip.Addr) bool { // called only if such a chain exists
		m, err := s.ownSources()
		failed = err
		return m
	})
	what.Match = func(r kernel.IPTablesRule) bool { return mine()(r.Source) }
	return errors.Join(kernel.UnlessNoNFT(s.Host.Rules.RemoveIPTables(what)), failed)
}

// ownSources returns a function that reports whether a masqueraded address of the container's chain
// belongs to this attachment; another interface of the container may be in the same network. The
// attachment has the addresses of the previous result and all addresses that no other interface
// has. Without namespace and result all addresses belong to the attachment.
func (s *Session) ownSources() (mine func(netip.Addr) bool, err error) {
	own, others := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	if s.Prev != nil {
		for _, ip := range s.Prev.IPs {
			own[ip.Address.Addr()] = true
			// Very old versions of the upstream plugins write the network.
			own[ip.Address.Masked().Addr()] = true
		}
	}
	if s.Sandbox != nil {
		err = s.otherAddresses(others)
	}
	guess := s.Sandbox != nil || len(own) == 0
	return func(a netip.Addr) bool { return own[a] || guess && !others[a] }, err
}

// otherAddresses collects the addresses of the container's other interfaces.
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

// upstreamMasquerades returns the addresses that an upstream plugin or the backend iptables
// masquerades for this attachment.
func (s *Session) upstreamMasquerades() ([]netip.Addr, error) {
	chain := iptablesMasquerade(s.Name, s.ContainerID).Chain
	jumps, err := s.Host.Rules.OfIPTables(iptablesJumps(chain))
	if err != nil {
		return nil, err
	}
	rules, err := s.Host.Rules.Of(upstreamTable, upstreamChain)
	if err := kernel.UnlessNoNFT(err); err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, j := range jumps {
		addrs = append(addrs, j.Source)
	}
	for _, r := range rules {
		if strings.HasPrefix(r.Comment, upstreamOwner(s.Attachment())) {
			addrs = append(addrs, r.Source)
		}
	}
	return addrs, nil
}
