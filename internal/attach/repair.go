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

// Repair implements [session.Repairer]: it restores the rules of the [Maker], then masquerading,
// and mends the container's interface.
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
	repairs.Mend = p.mender(c)
	if err := p.Maker.Repair(s); err != nil {
		return err
	}
	if r, ok := p.Maker.(Restorer); ok {
		repairs.Restore = p.restoreBy(c, r)
		return nil
	}
	if !s.masq.IPMasq {
		return nil
	}
	return p.repairMasquerade(s, repairs)
}

// Restorer is a [Maker] without masquerading that has objects outside the kernel which another
// program can remove, such as rows of a database.
type Restorer interface {
	// Restore restores the missing objects of the attachment, and returns them for people. If the
	// container's interface is gone, it restores nothing.
	Restore(context.Context, *Session) (restored []string, err error)
}

// restoreBy returns the step that restores the objects of a Restorer.
func (p *Plugin) restoreBy(
	c *plugin.Call, r Restorer,
) func(context.Context, session.Step) ([]string, error) {
	return func(ctx context.Context, step session.Step) (restored []string, err error) {
		if step != session.Allow {
			return nil, nil
		}
		err = p.change(ctx, c, func(s *Session) (err error) {
			restored, err = r.Restore(ctx, s)
			return err
		})
		return restored, err
	}
}

// repairMasquerade skips addresses that surviving rules of the upstream plugins masquerade.
func (p *Plugin) repairMasquerade(s *Session, repairs *session.Repairs) error {
	if s.Prev == nil { // a version without results, hence without addresses
		return nil
	}
	theirs, err := s.upstreamMasquerades()
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

// restoreByIPTables returns the step that restores the iptables rules for nets; missing are those
// of nets that have no rules.
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
		// The deciding rule may be of the legacy variant.
		if len(missing) > 0 && s.masq.backend() == Auto {
			if _, err := s.chooseMasq(nets); err != nil {
				return nil, err
			}
		}
		// Restore all nets, because the chain may have lost rules while the jumps remain.
		if err := s.masqueradeBy(IPTables, nets); err != nil {
			return nil, errors.Join(err, s.Tx.Rollback())
		}
		for _, address := range missing {
			restored = append(restored, "masquerade by iptables "+address.String())
		}
		return restored, nil
	}
}

// presentIPs returns the addresses of the previous result that the container's interface still has.
// Without that interface the namespace and the addresses may belong to another container now.
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

// PrevMAC returns the MAC address that ADD gave the container's interface. It reads the interface
// only if the previous result has no MAC address, because the container can change it.
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

// HostEnd returns the host-side veth of the container's interface. If either interface does not
// exist, or the host-side veth belongs to another attachment now, the error wraps
// [kernel.ErrNoLink].
func (s *Session) HostEnd() (kernel.Link, error) {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return kernel.Link{}, err
	}
	host, err := s.Host.Links.Peer(link)
	if o, ok := cni.ParseTag(host.Alias); ok && o != s.Attachment().Owner() {
		return kernel.Link{}, fmt.Errorf("link %q: %w: %q belongs to another attachment", s.IfName, kernel.ErrNoLink, host.Name)
	}
	return host, err
}
