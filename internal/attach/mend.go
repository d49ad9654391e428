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
	"github.com/tenon-cni/tenon/plugin"
)

// Mender is a [Maker] with objects outside the container that another program can delete or change:
// a bridge and its ports, gateway addresses, routes, settings.
type Mender interface {
	// Mend compares the objects with the configuration and Prev, and restores missing ones. link is
	// the container's interface, which already is up and has its addresses, unless they could not be
	// restored.
	Mend(ctx context.Context, s *Session, link kernel.Link, m *session.Mending) error
}

// mender returns the function that restores missing objects of the attachment.
func (p *Plugin) mender(c *plugin.Call) func(context.Context, *session.Mending) error {
	if c.Prev == nil || p.Options().NoLink {
		return nil
	}
	return func(ctx context.Context, m *session.Mending) error {
		s, err := p.open(ctx, c)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Enter(); err != nil {
			return err
		}
		defer s.Tx.Keep() // each object stands alone
		return p.mend(ctx, s, m)
	}
}

func (p *Plugin) mend(ctx context.Context, s *Session, m *session.Mending) error {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Errorf(cni.CodeUnknownContainer, "%w", err).WithDetails("run DEL")
	}
	if err != nil {
		return err
	}
	if err := s.checkIdentity(link); err != nil {
		return err
	}
	// A daemon maintains the addresses of a lease, which can change.
	leased := s.IPAM.Type == "dhcp"
	if !leased {
		if err := p.mendAddresses(ctx, s, link, m); err != nil {
			return err
		}
	}
	if !link.Up && !p.Options().KeepDown {
		m.Fix(s.inside("link %s up", s.IfName), func() error { return s.up(link) })
	}
	if r, ok := p.Maker.(Mender); ok {
		if err := r.Mend(ctx, s, link, m); err != nil {
			return err
		}
	}
	if leased {
		return nil
	}
	return s.mendRoutes(link, m)
}

// inside names an object in the container.
func (s *Session) inside(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + " in " + s.ContainerID
}

// checkIdentity returns an error if the container's interface belongs to another attachment: a path
// of a namespace can lead to another container after a restart.
func (s *Session) checkIdentity(link kernel.Link) error {
	if o, ok := cni.ParseTag(link.Alias); ok && o == s.Attachment().Owner() {
		return nil
	}
	if link.Kind == "veth" {
		host, err := s.Host.Links.Peer(link)
		if o, ok := cni.ParseTag(host.Alias); err == nil && ok && o == s.Attachment().Owner() {
			return nil
		}
	}
	want, err := s.PrevMAC()
	if err == nil && slices.Equal(want, link.MAC) {
		return nil
	}
	return cni.Errorf(cni.CodeUnknownContainer,
		"interface %s in %s does not belong to this attachment", link.Name, s.Netns).
		WithDetails("run DEL")
}

// mendAddresses restores missing addresses of the container's interface.
func (p *Plugin) mendAddresses(
	ctx context.Context, s *Session, link kernel.Link, m *session.Mending,
) error {
	have, err := s.Sandbox.Addrs.Of(link)
	if err != nil {
		return err
	}
	for _, ip := range s.PrevIPs() {
		if slices.Contains(have, ip.Address) {
			continue
		}
		m.Fix(s.inside("address %s dev %s", ip.Address, link.Name), func() error {
			if err := give(s, p.Options(), link, []cni.IP{ip}); err != nil || ip.Address.Addr().Is4() {
				return err
			}
			return s.Sandbox.Addrs.WaitDAD(ctx, link) // routes can have it as their source
		})
	}
	return nil
}

// mendRoutes restores missing routes of the container's interface: to the networks of its
// addresses, then the routes of the result.
func (s *Session) mendRoutes(link kernel.Link, m *session.Mending) error {
	have, err := s.Sandbox.Routes.All(kernel.AllTables)
	if err != nil {
		return err
	}
	ips := s.PrevIPs()
	var missing []kernel.Route
	for _, ip := range ips {
		onLink := kernel.Route{Dst: ip.Address.Masked(), Scope: kernel.ScopeLink, Src: ip.Address.Addr()}
		if !ip.Address.IsSingleIP() &&
			s.Sandbox.Routes.Check(link, []kernel.Route{{Dst: onLink.Dst}}) != nil {
			missing = append(missing, onLink)
		}
	}
	for _, rt := range s.Prev.Routes {
		want := session.Route(rt)
		if !want.Possible() {
			continue
		}
		if want.Dst.Bits() == 0 {
			want.GW = netip.Addr{} // a later plugin may have chosen another
		}
		if s.Sandbox.Routes.Check(link, []kernel.Route{want}) != nil && !elsewhere(have, want, link) {
			missing = append(missing, route(rt, ips))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if link.Master != 0 || slices.ContainsFunc(have, func(rt kernel.Route) bool {
		return rt.Link == link.Index && rt.Table != kernel.TableMain
	}) {
		// Plugins sbr and vrf have moved the routes.
		return fmt.Errorf("route %s dev %s is missing, and other routes are in other tables", missing[0],
			link.Name)
	}
	for _, rt := range missing {
		m.Fix(s.inside("route %s dev %s", rt, link.Name), func() error {
			return s.Sandbox.Routes.Add(link, rt)
		})
	}
	return nil
}

// elsewhere reports whether a default route leads through another interface, for example of a VPN
// client in the container.
func elsewhere(have []kernel.Route, want kernel.Route, link kernel.Link) bool {
	return want.Dst.Bits() == 0 && slices.ContainsFunc(have, func(rt kernel.Route) bool {
		return rt.Dst == want.Dst && rt.Link != link.Index
	})
}

// MendHostEnd returns the host-side veth of the container's interface, and sets it up if it is
// down.
func (s *Session) MendHostEnd(m *session.Mending) (kernel.Link, error) {
	host, err := s.HostEnd()
	if err == nil && !host.Up {
		m.Fix(fmt.Sprintf("link %s up", host.Name), func() error { return s.Host.Links.Up(host) })
	}
	return host, err
}

// MendGateways restores missing gateway addresses on an interface of the host. address returns the
// gateway address for an address of the container, and add adds it.
func (s *Session) MendGateways(
	link kernel.Link, address func(cni.IP) netip.Prefix, add func(netip.Prefix) error,
	m *session.Mending,
) error {
	have, err := s.Host.Addrs.Of(link)
	if err != nil {
		return err
	}
	for _, ip := range s.PrevIPs() {
		if !ip.Gateway.IsValid() {
			continue
		}
		if want := address(ip); !slices.Contains(have, want) {
			m.Fix(fmt.Sprintf("address %s dev %s", want, link.Name), func() error { return add(want) })
		}
	}
	return nil
}

// MendForwarding turns forwarding on again for the families of the addresses.
func (s *Session) MendForwarding(ips []cni.IP, m *session.Mending) error {
	for _, ip := range ips {
		for _, setting := range forwarding([]cni.IP{ip}) {
			value, err := s.Host.Sysctl.Read(setting.Key)
			if err != nil {
				return err
			}
			if value != setting.Value {
				m.Fix("sysctl "+setting.Key+"="+setting.Value, func() error {
					return s.Host.Sysctl.Ensure([]kernel.Setting{setting})
				})
			}
		}
	}
	return nil
}
