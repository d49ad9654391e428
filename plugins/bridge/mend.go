package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Mend implements [attach.Mender]: it restores the bridge, its port, the gateway addresses and
// forwarding. If another program has replaced the bridge, Mend attaches the port to the new one.
func (c *Config) Mend(
	ctx context.Context, s *attach.Session, _ kernel.Link, m *session.Mending,
) error {
	br, err := c.mendBridge(s, m)
	if err != nil {
		return kernel.UnlessNoLink(err) // still missing: without it there is no port to restore
	}
	if err := c.mendPort(s, br, m); err != nil {
		return err
	}
	ips := s.PrevIPs()
	if !c.gateway() || len(ips) == 0 {
		return nil
	}
	if err := c.mendGateway(ctx, s, br, m); err != nil {
		return err
	}
	return s.MendForwarding(ips, m)
}

func (c *Config) mendBridge(s *attach.Session, m *session.Mending) (kernel.Link, error) {
	br, err := s.Host.Links.ByName(c.bridge())
	if err == nil && br.Kind != "bridge" {
		return br, fmt.Errorf("link %q is a %s: %w", br.Name, br.Kind, kernel.ErrNotBridge)
	}
	object := "bridge " + c.bridge()
	switch {
	case err == nil && br.Up:
		return br, nil
	case err == nil:
		object = "link " + br.Name + " up"
	case !errors.Is(err, kernel.ErrNoLink):
		return br, err
	}
	m.Fix(object, func() error {
		_, _, err := s.Host.Links.EnsureBridge(kernel.Bridge{
			Name: c.bridge(), MAC: recordedMAC(s, c.bridge()), MTU: c.MTU, Promisc: c.PromiscMode,
			VLANFiltering: c.filtering(),
		})
		return err
	})
	return s.Host.Links.ByName(c.bridge())
}

func (c *Config) mendPort(s *attach.Session, br kernel.Link, m *session.Mending) error {
	port, err := s.MendHostEnd(m)
	if err != nil {
		return err
	}
	if port.Master != br.Index {
		m.Fix(fmt.Sprintf("port %s of bridge %s", port.Name, br.Name), func() error {
			return c.join(s, br, port)
		})
		return nil
	}
	if _, ours := cni.ParseTag(port.Alias); !br.VLANFiltering || c.checkVLANs(s, br, port, ours) == nil {
		return nil
	}
	m.Fix("VLANs of port "+port.Name, func() error { return c.setVLANs(s.Host, port, c.vlans()) })
	return nil
}

// join makes the host-side veth a port of the bridge, configured as Make configures it.
func (c *Config) join(s *attach.Session, br, port kernel.Link) error {
	if err := s.Distrust(br); err != nil {
		return err
	}
	if err := s.Host.Links.SetMaster(port, br); err != nil {
		return err
	}
	if c.HairpinMode || c.PortIsolation {
		if err := s.Host.Links.SetPort(port, kernel.Port{
			Hairpin: c.HairpinMode, Isolated: c.PortIsolation,
		}); err != nil {
			return err
		}
	}
	return c.setVLANs(s.Host, port, c.vlans())
}

// mendGateway restores the gateway addresses on the bridge, or on the gateway interface of the
// VLAN. A bridge that had lost an address gets its former MAC address, if known, because containers
// cache it.
func (c *Config) mendGateway(
	ctx context.Context, s *attach.Session, br kernel.Link, m *session.Mending,
) (err error) {
	gw := br
	if c.VLAN != 0 {
		if gw, err = c.checkVLANGateway(s, br); err != nil {
			m.Fix(fmt.Sprintf("gateway of VLAN %d on %s", c.VLAN, br.Name), func() error {
				_, err := c.ensureVLANGateway(ctx, s, br)
				return err
			})
			if gw, err = s.Host.Links.ByName(c.vlanGateway()); err != nil {
				return kernel.UnlessNoLink(err)
			}
		}
	}
	return s.MendGateways(gw, gatewayAddr, func(want netip.Prefix) error {
		if _, err := c.ensureAddr(s, gw, want); err != nil || gw.Index != br.Index {
			return err
		}
		_, err := pin(s, br, recordedMAC(s, br.Name).String())
		return err
	}, m)
}

// recordedMAC returns the MAC address of an interface of the host in the previous result, or nil.
func recordedMAC(s *attach.Session, name string) net.HardwareAddr {
	for _, i := range s.Prev.Interfaces {
		if i.Name == name && i.Sandbox == "" {
			if mac, err := net.ParseMAC(i.MAC); err == nil && len(mac) == 6 {
				return mac
			}
		}
	}
	return nil
}
