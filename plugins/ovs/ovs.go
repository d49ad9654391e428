package ovs

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/plugin"
)

const (
	// undoBudget limits the removal of a port after a failed ADD. It is independent of the deadline
	// of the call.
	undoBudget = 10 * time.Second

	// restartTime is the time that a call waits for a database that is restarting.
	restartTime = 3 * time.Second
)

// Define returns the definition of the plugin on a switch. With nil the plugin has no switch, see
// [Plugin].
func Define(dial Dialer) plugin.Definition {
	alone := dial == nil
	if alone {
		dial = refuse
	}
	return attach.Define(plugin.Info{
		Name:         "ovs",
		About:        "connects a container to an Open vSwitch bridge, also across nodes by VXLAN",
		Capabilities: []string{"mac"},
		Args:         []string{"MAC", "OvnPort", "K8S_POD_UID"},
		Doc:          doc,
	}, attach.Traits{Kind: "veth"}, func() attach.Maker { return &Config{dial: dial, alone: alone} })
}

// open connects to the switch once for each call.
func (c *Config) open(ctx context.Context, s *attach.Session) (Switch, error) {
	if c.sw != nil {
		return c.sw, nil
	}
	if err := c.fill(s.Call); err != nil && s.Command != cni.Del && s.Command != cni.GC {
		return nil, err
	} else if err != nil {
		s.Log.Warn("using the default options", "error", err)
	}
	sw, err := c.dial(ctx, c.endpoint(), restartTime)
	if err != nil {
		return nil, unreachable(cni.CodeTryAgainLater, err)
	}
	s.OnClose(sw.Close)
	c.sw = sw
	return sw, nil
}

// unreachable gives an error the code if the database does not answer.
func unreachable(code cni.Code, err error) error {
	if !errors.Is(err, ErrUnreachable) {
		return err
	}
	return cni.Errorf(code, "%w", err).
		WithDetails("start ovsdb-server, for example with: systemctl start openvswitch-switch; " +
			"or correct socket_file")
}

// Options implements [attach.Maker].
func (c *Config) Options() attach.Options { return attach.Options{Announce: true} }

// Status reports a database that does not answer, and a missing bridge.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	if err := c.fill(call); err != nil {
		return err
	}
	sw, err := c.dial(ctx, c.endpoint(), 0)
	if err != nil {
		return unreachable(cni.CodeNotAvailable, err)
	}
	defer sw.Close()
	if c.CreateBridge {
		return nil
	}
	ok, err := sw.HasBridge(ctx, c.bridge())
	if err == nil && !ok {
		err = noBridge(c.bridge())
	}
	return unreachable(cni.CodeNotAvailable, err)
}

func noBridge(name string) error {
	return cni.Errorf(cni.CodeInvalidConfig, "bridge %s: %w", name, ErrNoBridge).
		WithDetails(`create it with: ovs-vsctl add-br ` + name + `; or set "createBridge": true`)
}

// Make creates the veth pair, and connects it to the bridge.
func (c *Config) Make(ctx context.Context, s *attach.Session) ([]cni.Interface, error) {
	sw, err := c.open(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := c.ensureBridge(ctx, s, sw); err != nil {
		return nil, err
	}
	if err := c.bury(ctx, s, sw); err != nil {
		return nil, err
	}
	inside, host, err := s.AddVeth(kernel.Veth{
		Name: s.IfName, MAC: c.mac, MTU: c.mtu(), Host: s.Host, HostName: s.HostName(), Alias: s.Tag,
	})
	if err != nil {
		return nil, err
	}
	// A port of a switch needs no addresses. With datapath netdev, packets would reach the node by
	// its link-local address as well.
	if err := s.Host.Sysctl.SetAll([]kernel.Setting{
		{Key: "net/ipv6/conf/" + host.Name + "/disable_ipv6", Value: "1", Optional: true},
	}); err != nil {
		return nil, err
	}
	if err := s.Distrust(host); err != nil {
		return nil, err
	}
	if err := s.Host.Links.Up(host); err != nil {
		return nil, err
	}
	if err := c.attach(ctx, s, sw, host); err != nil {
		return nil, err
	}
	return []cni.Interface{
		{Name: host.Name, MAC: host.MAC.String()},
		{Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns},
	}, nil
}

func (c *Config) ensureBridge(ctx context.Context, s *attach.Session, sw Switch) error {
	name := c.bridge()
	ok, err := sw.HasBridge(ctx, name)
	switch {
	case err != nil:
		return unreachable(cni.CodeTryAgainLater, err)
	case ok:
		return nil
	case !c.CreateBridge:
		return noBridge(name)
	}
	return s.Tx.Do("create bridge "+name, func() error {
		return unreachable(cni.CodeTryAgainLater, sw.CreateBridge(ctx, name, c.datapath()))
	}, nil)
}

// bury removes the ports of containers that ended without DEL.
func (c *Config) bury(ctx context.Context, s *attach.Session, sw Switch) error {
	gone := func(p Attached) bool { return dead(s, p) }
	list, err := sw.Find(ctx, gone)
	if err != nil {
		return unreachable(cni.CodeTryAgainLater, err)
	}
	if len(list) == 0 {
		return nil
	}
	return s.Tx.Do("delete ports without a link", func() error {
		removed, err := sw.Detach(ctx, gone)
		s.Log.Warn("deleted ports of containers that no longer exist", "ports", removed)
		return unreachable(cni.CodeTryAgainLater, err)
	}, nil)
}

// attach adds the host-side veth to the bridge.
func (c *Config) attach(ctx context.Context, s *attach.Session, sw Switch, host kernel.Link) error {
	port, err := c.port(s, host.Name)
	if err != nil {
		return err
	}
	detach := func() error {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBudget)
		defer cancel()
		_, err := sw.Detach(undo, func(p Attached) bool { return p.Owner.Attachment == s.Attachment() })
		return err
	}
	err = s.Tx.Do("add port "+host.Name+" to bridge "+port.Bridge, func() error {
		exposure, err := sw.Attach(ctx, port)
		if err != nil {
			return errors.Join(err, detach())
		}
		if len(exposure.Ports) > 0 {
			s.Log.Warn("ports of other programs carry the VLAN of the segment, so its frames leave the "+
				"bridge there", "bridge", port.Bridge, "vxlanID", port.Segment.VNI,
				"vlan", exposure.VLAN, "ports", exposure.Ports)
		}
		return nil
	}, detach)
	if errors.Is(err, ErrNoBridge) {
		return noBridge(port.Bridge)
	}
	return unreachable(cni.CodeTryAgainLater, err)
}

// port describes the port that the configuration asks for.
func (c *Config) port(s *attach.Session, name string) (Port, error) {
	segment, err := c.localSegment(s)
	if err != nil {
		return Port{}, err
	}
	return Port{
		Name: name, Bridge: c.bridge(),
		Owner: Owner{Attachment: s.Attachment(), Netns: s.Netns},
		Tag:   c.tag(), Trunks: c.trunks(), Segment: segment,
		Protected: c.Isolated, OpenFlow: c.OFPortRequest,
		InterfaceType: c.InterfaceType, InterfaceID: c.ovn,
	}, nil
}

// localSegment returns the segment without tunnels to addresses of this node.
func (c *Config) localSegment(s *attach.Session) (*Segment, error) {
	var failed error
	segment := c.segment(func(a netip.Addr) bool {
		own, err := s.Host.Addrs.IsLocal(a)
		failed = errors.Join(failed, err)
		return own
	})
	return segment, failed
}

// Amend refuses an MTU that is too small for the addresses, and derives the MAC address.
func (c *Config) Amend(s *attach.Session, r *cni.Result) error {
	for _, ip := range r.IPs {
		if mtu := c.mtu(); !ip.Address.Addr().Is4() && mtu != 0 && mtu < minMTU6 {
			return invalid("mtu: %d is less than %d, the minimum for IPv6 address %s", mtu, minMTU6,
				ip.Address)
		}
	}
	if !c.MACFromIP || c.mac != nil {
		return nil
	}
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	mac := macOf(r.IPs[0].Address.Addr())
	r.Interfaces[1].MAC = mac.String()
	return s.Sandbox.Links.SetMAC(inside, mac)
}

// macOf derives a MAC address from an address, in the same way as ovs-cni.
func macOf(a netip.Addr) net.HardwareAddr {
	four := a.AsSlice()
	if !a.Is4() {
		sum := sha256.Sum256([]byte(a.String()))
		four = sum[:4]
	}
	return append(net.HardwareAddr{0x0a, 0x58}, four...)
}

// Finish waits until the port is up, and announces the addresses through it.
func (c *Config) Finish(ctx context.Context, s *attach.Session, r *cni.Result) error {
	if len(r.IPs) == 0 {
		return nil
	}
	wait := trace.From(ctx).Waiting("event", "Open vSwitch reports the port as up")
	err := c.sw.WaitUp(ctx, s.HostName(), c.patience())
	wait.End(err)
	if err != nil {
		return unreachable(cni.CodeTryAgainLater, err)
	}
	return s.Announce()
}
