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

// Masq is the part of a configuration that is about masquerading. A plugin that masquerades embeds it in its own: then
// the keys are checked, STATUS asks for what they need, and DEL and GC look where the reference plugins leave things.
type Masq struct {
	// IPMasq masquerades what leaves the network. It needs ipam.
	IPMasq bool `json:"ipMasq"`
	// IPMasqBackend is what masquerades: "nftables" with table inet tenon, or "iptables" with the chains CNI-… of table nat
	// that the upstream plugins make, for which iptables-restore and ip6tables-restore must be in PATH. "auto" is nftables
	// unless the host asks for iptables: see [Choice of the backend](../nat-backend.md).
	IPMasqBackend Backend `json:"ipMasqBackend" enum:"auto,nftables,iptables" default:"auto"`
	// Masquerade is what is masqueraded, and how. It needs IPMasq.
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
			return cni.Errorf(cni.CodeInvalidConfig, "ipMasqBackend: iptables: comment with network and container has %d bytes, %d are possible", n, kernel.MaxIPTablesComment).
				WithDetails(`use "nftables"`)
		}
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unknown ipmasq backend %q", m.IPMasqBackend).
			WithDetails(fmt.Sprintf("ipMasqBackend is %q, %q or %q", Auto, NFTables, IPTables))
	}
	return m.validateDetails()
}

// status reports what masquerading lacks on this host.
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

// available says whether the tool is there, where one is needed. code is that of the error.
func (m *Masq) available(code cni.Code) error {
	if !m.IPMasq || m.IPMasqBackend != IPTables {
		return nil
	}
	return session.LacksIPTables(code, "ipMasqBackend: iptables", "leave ipMasqBackend out")
}

// Masquerade hides what leaves the networks of addresses behind the host. DEL and GC take it away. What the attachment had
// in the other backend goes.
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
		how.Exclude = d.ExcludeCIDRs
		return s.Host.Rules.MasqueradeIPTables(how, nets)
	}
	return s.Host.Rules.Masquerade(s.Tag, d.masq(), nets)
}

// release removes the entries of the ruleset that masquerade for attachments that are gone.
func (s *Session) release(g Gone) error {
	return s.Host.Rules.Release(g.Tag, kernel.Masquerading, kernel.Dropping)
}

// unmasquerade removes the masquerading of attachments that no longer exist, including rules of the upstream plugins.
func (s *Session) unmasquerade(g Gone) error {
	return errors.Join(s.release(g), s.removeReference(g))
}

// CheckMasquerade looks for the masquerading of the addresses of the previous result. Which backend does it, and which
// plugin set it up, does not matter.
func (s *Session) CheckMasquerade() error {
	d := s.masq.details()
	var missing []netip.Addr
	nets := d.masqueraded(s.PrevIPs())
	for _, address := range nets {
		entries, err := d.masq().Elements(address)
		if err != nil {
			return err
		}
		absent, err := s.Host.Rules.Missing(s.Tag, entries)
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
	theirs, err := s.referenceMasquerades()
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
		return session.Drift("%s: expected address %s to be masqueraded for %s, found it is not", where, addr, s.Attachment())
	}
	return nil
}
