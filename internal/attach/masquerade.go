package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Masq is the part of a configuration for masquerading. A plugin that masquerades embeds it in its
// configuration. Validation then checks the keys, STATUS checks their prerequisites, and DEL and GC
// also remove the rules of the upstream plugins.
type Masq struct {
	// IPMasq masquerades packets that leave the network. It requires ipam.
	IPMasq bool `json:"ipMasq"`
	// IPMasqBackend selects the masquerading backend: "nftables" with table inet tenon, or
	// "iptables" with the chains CNI-… of table nat, which the upstream plugins use too, and which
	// need iptables-restore and ip6tables-restore in PATH. "auto" uses nftables unless the host
	// requires iptables: see [Choice of the backend](../nat-backend.md).
	IPMasqBackend Backend `json:"ipMasqBackend" enum:"auto,nftables,iptables" default:"auto"`
	// Masquerade changes the defaults of masquerading. It requires IPMasq.
	Masquerade *Masquerade `json:"masquerade"`
}

// Backend is a subsystem of the kernel with its tool.
type Backend string

// The backends. The empty one is [Auto].
const (
	Auto     Backend = "auto" // see [Session.masqBackend]
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

func (m *Masq) masq() *Masq { return m }

func (m *Masq) validate(env cni.Env, network string) error {
	switch m.IPMasqBackend {
	case "", Auto, NFTables:
	case IPTables:
		if n := len(iptablesMasquerade(network, env.ContainerID).Comment); m.IPMasq && n > kernel.MaxIPTablesComment {
			return cni.Errorf(cni.CodeInvalidConfig, "ipMasqBackend: iptables: the comment with network and container has %d bytes, more than %d", n, kernel.MaxIPTablesComment).
				WithDetails(`set ipMasqBackend to "nftables"`)
		}
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unknown ipmasq backend %q", m.IPMasqBackend).
			WithDetails(fmt.Sprintf("ipMasqBackend must be %q, %q or %q", Auto, NFTables, IPTables))
	}
	return m.validateDetails()
}

// status reports missing prerequisites of masquerading on this host.
func (m *Masq) status(ctx context.Context) error {
	if !m.IPMasq {
		return nil
	}
	backend := m.backend()
	if backend == IPTables {
		return m.available(cni.CodeNotAvailable)
	}
	err := session.Lacking(kernel.FeatureNFT)
	if err != nil && backend == Auto {
		return session.NATStatus(ctx, kernel.Masquerading)
	}
	return err
}

// available returns an error with the code if a required iptables binary is missing.
func (m *Masq) available(code cni.Code) error {
	if !m.IPMasq || m.IPMasqBackend != IPTables {
		return nil
	}
	return session.LacksIPTables(code, "ipMasqBackend: iptables", "omit ipMasqBackend")
}

// Masquerade masquerades packets from the addresses to other networks. DEL and GC undo it. It
// removes the attachment's rules in the other backend.
func (s *Session) Masquerade(ips []cni.IP) error {
	nets := s.masq.details().masqueraded(ips)
	if len(nets) == 0 {
		return nil
	}
	backend, err := s.masqBackend(nets)
	if err != nil {
		return err
	}
	if err := s.masqueradeBy(backend, nets); err != nil {
		return err
	}
	gone := session.GoneOne(s.Attachment())
	if backend == IPTables {
		return s.release(gone)
	}
	chain := iptablesMasquerade(s.Name, s.ContainerID).Chain
	if jumps, err := s.Host.Rules.OfIPTables(iptablesJumps(chain)); len(jumps) == 0 || err != nil {
		return err
	}
	return s.removeIPTables(gone)
}

func (s *Session) masqueradeBy(backend Backend, nets []netip.Prefix) error {
	if len(nets) == 0 {
		return nil
	}
	d := s.masq.details()
	if backend == IPTables {
		how := iptablesMasquerade(s.Name, s.ContainerID)
		pools, err := s.clusterPools(nets)
		if err != nil {
			return err
		}
		how.Exclude = slices.Concat(d.ExcludeCIDRs, pools)
		return s.Host.Rules.MasqueradeIPTables(how, nets)
	}
	return s.Host.Rules.Masquerade(s.Tag, d.masq(), nets)
}

// clusterPools returns the pools of a cluster if one of the addresses is in a pool: packets from
// there to the pools keep their source. The rule set of nftables looks the pools up itself.
func (s *Session) clusterPools(nets []netip.Prefix) ([]netip.Prefix, error) {
	pools, err := s.Host.Rules.ClusterPools()
	for _, a := range nets {
		if slices.ContainsFunc(pools, func(n netip.Prefix) bool { return n.Contains(a.Addr()) }) {
			return pools, err
		}
	}
	return nil, err
}

// release removes the nftables elements that masquerade for attachments that no longer exist.
func (s *Session) release(g Gone) error {
	return s.Host.Rules.Release(g.Tag, kernel.Masquerading, kernel.Dropping)
}

// unmasquerade removes the masquerading of attachments that no longer exist, including rules of the
// upstream plugins.
func (s *Session) unmasquerade(g Gone) error {
	return errors.Join(s.release(g), s.removeUpstream(g))
}

// CheckMasquerade checks that the addresses of the previous result are masqueraded, by any backend
// and by Tenon or an upstream plugin.
func (s *Session) CheckMasquerade() error {
	d := s.masq.details()
	var missing []netip.Addr
	nets := d.masqueraded(s.PrevIPs())
	for _, address := range nets {
		elements, err := d.masq().Elements(address)
		if err != nil {
			return err
		}
		absent, err := s.Host.Rules.Missing(s.Tag, elements)
		if kernel.UnlessNoNFT(err) != nil {
			return err
		}
		if err != nil || len(absent) > 0 {
			missing = append(missing, address.Addr())
		}
	}
	if len(missing) == 0 {
		if s.masq.backend() == Auto {
			s.WarnOfMoves(s.moveMasquerade(nets, true))
		}
		return nil
	}
	theirs, err := s.upstreamMasquerades()
	if err != nil {
		return err
	}
	for _, addr := range missing {
		if slices.Contains(theirs, addr) {
			continue
		}
		where := "nftables table inet tenon"
		if s.masq.backend() == IPTables {
			where = "chain " + iptablesMasquerade(s.Name, s.ContainerID).Chain + " of iptables"
		}
		return session.Drift("%s: masquerade rule for %s of %s is missing", where, addr, s.Attachment())
	}
	return nil
}
