package portmap

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// openLoopback lets connections to 127.0.0.1 reach the container if one of the mappings is for that
// address: packets with this source may then leave through the link to the container. A guard in
// the ruleset drops such packets of other hosts (CVE-2020-8558). Several containers can need the
// setting, so it is never undone.
func (c *Config) openLoopback(s *chained.Session) error {
	setting, err := c.loopbackSetting(s)
	if setting.Key == "" || err != nil {
		return err
	}
	return s.Host.Sysctl.Ensure([]kernel.Setting{setting})
}

// loopbackSetting returns the setting that connections to 127.0.0.1 need, the zero value if none
// leads to the container.
func (c *Config) loopbackSetting(s *chained.Session) (needed kernel.Setting, err error) {
	to, ok := c.fromLoopback()
	if !ok {
		return needed, nil
	}
	link, err := s.Host.Routes.LinkTo(to)
	if errors.Is(err, kernel.ErrNoRoute) {
		return needed, nil
	}
	return kernel.Setting{Key: "net/ipv4/conf/" + link.Name + "/route_localnet", Value: "1"}, err
}

// restoreLoopback restores the setting that connections to 127.0.0.1 need.
func (c *Config) restoreLoopback(s *chained.Session) (restored []string, err error) {
	setting, err := c.loopbackSetting(s)
	if setting.Key == "" || err != nil {
		return nil, err
	}
	if value, err := s.Host.Sysctl.Read(setting.Key); value == setting.Value || err != nil {
		return nil, err
	}
	if err := s.Host.Sysctl.Ensure([]kernel.Setting{setting}); err != nil {
		return nil, err
	}
	return []string{"sysctl " + setting.Key + "=1"}, nil
}

// fromLoopback returns the address of the container if connections to 127.0.0.1 lead to it.
func (c *Config) fromLoopback() (to netip.Addr, ok bool) {
	i := slices.IndexFunc(c.maps, func(m kernel.PortMapping) bool {
		return m.To.Addr().Is4() && (!m.Host.IsValid() || m.Host.IsLoopback())
	})
	if i < 0 || !c.snat() {
		return netip.Addr{}, false
	}
	return c.maps[i].To.Addr(), true
}

// loopbackGuard returns the element that backend iptables needs in the ruleset: it activates the
// guard of the loopback addresses. Without nftables in the kernel there is no guard.
func (c *Config) loopbackGuard(s *chained.Session) ([]kernel.Element, error) {
	if _, ok := c.fromLoopback(); !ok {
		return nil, nil
	}
	if err := s.Usable(kernel.Publishing); err != nil {
		return nil, kernel.UnlessNoNFT(err)
	}
	return []kernel.Element{kernel.Publisher(s.Tag)}, nil
}
