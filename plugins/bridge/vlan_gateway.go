package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// The gateway of a VLAN is an interface on the node: one end of a veth pair; the other end is a
// port of the bridge. All containers of the VLAN share it, and it is never removed.

// vlanGateway returns the name of the gateway interface.
func (c *Config) vlanGateway() string { return fmt.Sprintf("%s.%d", c.bridge(), c.VLAN) }

// vlanGatewayAlias returns the alias of both ends. It contains no attachment, so GC keeps them.
func (c *Config) vlanGatewayAlias() string {
	return fmt.Sprintf("tenon gateway of VLAN %d on %s", c.VLAN, c.bridge())
}

// ensureVLANGateway finds or creates the gateway interface. It uses an existing interface of any
// kind, and completes a veth pair of an ADD that was killed. It undoes no change, because other
// containers use the interface as soon as it exists.
func (c *Config) ensureVLANGateway(
	ctx context.Context, s *attach.Session, br kernel.Link,
) (kernel.Link, error) {
	host := s.Host.Shared()
	gw, err := host.Links.ByName(c.vlanGateway())
	if errors.Is(err, kernel.ErrNoLink) {
		gw, err = c.addVLANGateway(host, br)
	}
	if err != nil {
		return gw, err
	}
	port, isPair := otherEnd(host, gw)
	isPair = isPair && (port.Master == 0 || port.Master == br.Index)
	if isPair && !port.Up { // setting it up is the last step
		if err := c.joinVLAN(s, host, br, gw, port); err != nil {
			return gw, err
		}
	}
	if !gw.Up {
		if err := host.Links.Up(gw); err != nil {
			return gw, err
		}
	}
	if !isPair {
		return gw, nil
	}
	wait, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	if err := host.Links.WaitUp(wait, port); err != nil {
		return gw, fmt.Errorf("bridge port of %s in error state: %w", gw.Name, err)
	}
	return gw, nil
}

// addVLANGateway creates the veth pair. If another process has created it meanwhile, it returns
// that one.
func (c *Config) addVLANGateway(host *kernel.Space, br kernel.Link) (kernel.Link, error) {
	name := c.vlanGateway()
	gw, _, err := host.Links.AddVeth(kernel.Veth{
		Name: name, MTU: br.MTU, Host: host,
		HostName: fmt.Sprintf("veth%x", sha256.Sum256([]byte(name)))[:12],
	})
	if errors.Is(err, unix.EEXIST) {
		if gw, again := host.Links.ByName(name); again == nil {
			return gw, nil
		}
	}
	return gw, err
}

// joinVLAN attaches one end of the veth pair to the bridge as a port in the VLAN.
func (c *Config) joinVLAN(s *attach.Session, host *kernel.Space, br, gw, port kernel.Link) error {
	for _, end := range []kernel.Link{gw, port} {
		if err := host.Links.SetAlias(end, c.vlanGatewayAlias()); err != nil {
			return err
		}
	}
	if err := s.Distrust(gw, port); err != nil {
		return err
	}
	if err := host.Sysctl.Ensure([]kernel.Setting{kernel.NoDAD(gw.Name)}); err != nil {
		return err
	}
	if err := host.Links.SetMaster(port, br); err != nil {
		return err
	}
	if err := c.setVLANs(host, port, []kernel.VLAN{untagged(c.VLAN)}); err != nil {
		return err
	}
	return host.Links.Up(port)
}

// otherEnd returns the peer of l if l is a veth and both ends are on the node.
func otherEnd(host *kernel.Space, l kernel.Link) (end kernel.Link, ok bool) {
	if l.Kind != "veth" || l.PeerNSID != -1 {
		return kernel.Link{}, false
	}
	end, err := host.Links.ByIndex(l.Peer)
	return end, err == nil
}

// checkVLANGateway finds the gateway interface, and checks its port if Tenon created it.
func (c *Config) checkVLANGateway(s *attach.Session, br kernel.Link) (kernel.Link, error) {
	gw, err := s.Host.Links.ByName(c.vlanGateway())
	if err != nil {
		return gw, fmt.Errorf("gateway of VLAN %d: %w", c.VLAN, err)
	}
	if err := s.CheckHostMAC(gw); err != nil {
		return gw, err
	}
	if err := session.CheckUp(gw); err != nil {
		return gw, err
	}
	port, isPair := otherEnd(s.Host, gw)
	if !isPair || gw.Alias != c.vlanGatewayAlias() {
		return gw, nil
	}
	if err := checkPort(port, br); err != nil {
		return gw, err
	}
	have, err := s.Host.Links.VLANs(port)
	if err != nil {
		return gw, err
	}
	if want := untagged(c.VLAN); !slices.Contains(have, want) {
		return gw, fmt.Errorf("interface %s: expected VLAN %s, found %s", port.Name,
			kernel.FormatVLANs([]kernel.VLAN{want}), kernel.FormatVLANs(have))
	}
	return gw, nil
}
