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

// Repairer is a Maker that has made entries of the ruleset beside masquerading. Repair makes them again.
type Repairer[C any] interface {
	Repair(*Session[C]) error
}

// repair makes the rules of an attachment again, from its result.
func repair(ctx context.Context, p untyped, c *plugin.AnyCall) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Enter(); err != nil {
		return err
	}
	if err := p.repair(s); err != nil {
		return err
	}
	if !masqOf(c.Config()).IPMasq {
		return nil
	}
	return repairMasquerade(ctx, s)
}

// repairMasquerade leaves alone the addresses that the reference plugins masquerade, whose rules survived.
func repairMasquerade(ctx context.Context, s *Core) error {
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
	details := masqOf(s.Config()).details()
	nets := details.masqueraded(all)
	missing := slices.DeleteFunc(slices.Clone(nets), func(a netip.Prefix) bool { return slices.Contains(theirs, a.Addr()) })
	backend, err := s.masqBackendInPlace(nets)
	if err != nil {
		return err
	}
	if backend != IPTables {
		if err := s.masqueradeBy(backend, missing); err != nil || len(missing) == 0 || masqOf(s.Config()).backend() != Auto {
			return err
		}
		return session.PutOff(ctx, session.Steps{Move: func(ctx context.Context, dryRun bool) ([]session.Move, error) {
			s, err := open(ctx, s.AnyCall)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			return s.moveMasquerade(nets, dryRun)
		}})
	}
	return session.PutOff(ctx, session.Steps{Allow: func(ctx context.Context) (restored []string, err error) {
		s, err := open(ctx, s.AnyCall)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if len(missing) > 0 && masqOf(s.Config()).backend() == Auto { // the deciding rule can be of the legacy variant
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
	}})
}

// presentIPs returns the addresses of the previous result that the container's interface still has. Without that interface
// the namespace is another container's by now, and so may be the addresses.
func (s *Core) presentIPs() ([]cni.IP, error) {
	link, err := s.Sandbox.Link(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	have, err := s.Sandbox.Addrs(link)
	return slices.DeleteFunc(s.PrevIPs(), func(ip cni.IP) bool {
		return !slices.ContainsFunc(have, func(p netip.Prefix) bool { return p.Addr() == ip.Address.Addr() })
	}), err
}

// PrevMAC returns the hardware address that the container's interface was given. That of the interface counts only where
// the result does not say: the container can have changed it.
func (s *Core) PrevMAC() (net.HardwareAddr, error) {
	if s.Prev != nil {
		for _, i := range slices.Backward(s.Own(s.Prev)) {
			if mac := s.Prev.Interfaces[i].MAC; mac != "" {
				return net.ParseMAC(mac)
			}
		}
	}
	link, err := s.Sandbox.Link(s.IfName)
	return link.MAC, err
}

// HostEnd returns the host's end of the pair that the container's interface is an end of. Without either, or if it is that
// of another attachment by now, the error wraps [kernel.ErrNoLink].
func (s *Core) HostEnd() (kernel.Link, error) {
	link, err := s.Sandbox.Link(s.IfName)
	if err != nil {
		return kernel.Link{}, err
	}
	host, err := s.Host.Peer(link)
	if o, ok := cni.ParseTag(host.Alias); ok && o != s.Attachment().Owner() {
		return kernel.Link{}, fmt.Errorf("link %q: %w: %q is that of another attachment", s.IfName, kernel.ErrNoLink, host.Name)
	}
	return host, err
}
