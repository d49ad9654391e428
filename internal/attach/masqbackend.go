package attach

import (
	"errors"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// backend returns the backend that a configuration demands, or [Auto] if the host decides. Options
// that only nftables supports demand nftables.
func (m *Masq) backend() Backend {
	switch {
	case m.IPMasqBackend == NFTables, m.IPMasqBackend == IPTables:
		return m.IPMasqBackend
	case m.details().needNFTables() != nil:
		return NFTables
	}
	return Auto
}

// masqBackend returns the backend that masquerades addresses, given with their prefix lengths.
func (s *Session) masqBackend(nets []netip.Prefix) (Backend, error) {
	if b := s.masq.backend(); b != Auto {
		return b, nil
	}
	chosen, err := s.chooseMasq(nets)
	return Backend(chosen.Backend), err
}

// chooseMasq chooses the backend by the state of the host.
func (s *Session) chooseMasq(nets []netip.Prefix) (kernel.NATChoice, error) {
	if len(iptablesMasquerade(s.Name, s.ContainerID).Comment) > kernel.MaxIPTablesComment {
		const reason = "the names of network and container are too long for an iptables comment"
		return kernel.NATChoice{Backend: kernel.NATByNFTables, Reason: reason}, nil
	}
	d := s.masq.details()
	return s.ChooseNAT("ipMasqBackend", kernel.Masquerading, masqQueries(nets, d)...)
}

// moveMasquerade moves masquerading of addresses from nftables to iptables if the state of the host
// requires it. With dryRun it only reports the move.
func (s *Session) moveMasquerade(nets []netip.Prefix, dryRun bool) ([]session.Move, error) {
	choice, err := s.chooseMasq(nets)
	if err != nil || choice.Backend != kernel.NATByIPTables {
		return nil, err
	}
	moves := []session.Move{{What: "masquerading", Backend: choice.Backend, Reason: choice.Reason}}
	if dryRun {
		return moves, nil
	}
	if err := s.masqueradeBy(IPTables, nets); err != nil {
		return nil, errors.Join(err, s.Tx.Rollback())
	}
	return moves, s.release(session.GoneOne(s.Attachment()))
}

// masqQueries returns queries for rules that decide about masqueraded packets. A prefix without
// host bits stands for all its addresses, any other prefix for one.
func masqQueries(nets []netip.Prefix, d Masquerade) (queries []kernel.NATQuery) {
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		multicast := [...]string{"224.0.0.0/4", "ff00::/8"}[f]
		t := kernel.NATTraffic{NotTo: append([]netip.Prefix{netip.MustParsePrefix(multicast)}, d.ExcludeCIDRs...)}
		for _, a := range nets {
			if a.Addr().Is4() == (f == kernel.IPv4) {
				from := netip.PrefixFrom(a.Addr(), a.Addr().BitLen())
				if a == a.Masked() {
					from = a
				}
				t.From = append(t.From, from)
				t.NotTo = append(t.NotTo, a.Masked())
			}
		}
		if len(t.From) > 0 {
			queries = append(queries, kernel.NATQuery{Family: f, NATPath: kernel.NATPath{Base: "POSTROUTING", Traffic: t}})
		}
	}
	return queries
}

// masqBackendInPlace returns the backend that masquerades for the attachment now, or chooses one if
// there is none.
func (s *Session) masqBackendInPlace(nets []netip.Prefix) (Backend, error) {
	if b := s.masq.backend(); b != Auto {
		return b, nil
	}
	elements, err := s.masq.details().masq().Elements(nets...)
	if err != nil {
		return "", err
	}
	missing, err := s.Host.Rules.Missing(s.Tag, elements)
	if kernel.UnlessNoNFT(err) != nil {
		return "", err
	}
	if err == nil && len(missing) < len(elements) {
		return NFTables, nil
	}
	chain := iptablesMasquerade(s.Name, s.ContainerID).Chain
	if jumps, err := s.Host.Rules.OfIPTables(iptablesJumps(chain)); len(jumps) > 0 || err != nil {
		return IPTables, err
	}
	return s.masqBackend(nets)
}
