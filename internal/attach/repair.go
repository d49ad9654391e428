package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Repair implements [session.Repairer]: it claims the rules of the [Maker], then masquerading.
func (p *Plugin) Repair(ctx context.Context, c *plugin.Call, repairs *session.Repairs) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Tx.CollectInto(&repairs.Rules)
	if err := s.Enter(); err != nil {
		return err
	}
	if err := p.Maker.Repair(s); err != nil {
		return err
	}
	if !s.masq.IPMasq {
		return nil
	}
	return p.repairMasquerade(s, repairs)
}

// repairMasquerade skips addresses that rules of the upstream plugins masquerade: those rules
// survived.
func (p *Plugin) repairMasquerade(s *Session, repairs *session.Repairs) error {
	if s.Prev == nil { // a version that cannot express it: there are no addresses
		return nil
	}
	theirs, err := s.referenceMasquerades()
	if err != nil {
		return err
	}
	all, err := s.presentIPs()
	if err != nil {
		return err
	}
	nets := s.masq.details().masqueraded(all)
	missing := slices.DeleteFunc(slices.Clone(nets), func(a netip.Prefix) bool { return slices.Contains(theirs, a.Addr()) })
	backend, err := s.masqBackendInPlace(nets)
	if err != nil {
		return err
	}
	if backend == IPTables {
		repairs.Restore = p.restoreByIPTables(s.Call, nets, missing)
		return nil
	}
	if len(missing) > 0 && s.masq.backend() == Auto {
		repairs.Move = func(ctx context.Context, dryRun bool) ([]session.Move, error) {
			s, err := p.open(ctx, s.Call)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			return s.moveMasquerade(nets, dryRun)
		}
	}
	return s.masqueradeBy(backend, missing)
}

// restoreByIPTables returns the step that restores the rules of iptables for nets, of which those
// in missing have none.
func (p *Plugin) restoreByIPTables(
	c *plugin.Call, nets, missing []netip.Prefix,
) func(context.Context, session.Step) ([]string, error) {
	return func(ctx context.Context, step session.Step) (restored []string, err error) {
		if step != session.Allow {
			return nil, nil
		}
		s, err := p.open(ctx, c)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if len(missing) > 0 && s.masq.backend() == Auto { // the deciding rule can be of the legacy variant
			if _, err := s.chooseMasq(nets); err != nil {
				return nil, err
			}
		}
		if err := s.masqueradeBy(IPTables, nets); err != nil { // all: the chain can have lost rules while the jumps remain
			return nil, errors.Join(err, s.Tx.Rollback())
		}
		for _, address := range missing {
			restored = append(restored, "masquerade by iptables "+address.String())
		}
		return restored, nil
	}
}

// presentIPs returns the addresses of the previous result that the container's interface still has. Without that interface
// the namespace is another container's by now, and so may be the addresses.
func (s *Session) presentIPs() ([]cni.IP, error) {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return nil, kernel.UnlessNoLink(err)
	}
	have, err := s.Sandbox.Addrs.Of(link)
	return slices.DeleteFunc(s.PrevIPs(), func(ip cni.IP) bool {
		return !slices.ContainsFunc(have, func(p netip.Prefix) bool { return p.Addr() == ip.Address.Addr() })
	}), err
}

// PrevMAC returns the hardware address that the container's interface was given. That of the interface counts only where
// the result does not say: the container can have changed it.
func (s *Session) PrevMAC() (net.HardwareAddr, error) {
	if s.Prev != nil {
		for _, i := range slices.Backward(s.Own(s.Prev)) {
			if mac := s.Prev.Interfaces[i].MAC; mac != "" {
				return net.ParseMAC(mac)
			}
		}
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	return link.MAC, err
}

// HostEnd returns the host's end of the pair that the container's interface is an end of. Without either, or if it is that
// of another attachment by now, the error wraps [kernel.ErrNoLink].
func (s *Session) HostEnd() (kernel.Link, error) {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return kernel.Link{}, err
	}
	host, err := s.Host.Links.Peer(link)
	if o, ok := cni.ParseTag(host.Alias); ok && o != s.Attachment().Owner() {
		return kernel.Link{}, fmt.Errorf("link %q: %w: %q is that of another attachment", s.IfName, kernel.ErrNoLink, host.Name)
	}
	return host, err
}
