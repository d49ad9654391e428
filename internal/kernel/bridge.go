package kernel

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// ErrNotBridge reports that a link is not a bridge.
var ErrNotBridge = errors.New("not a bridge")

// Bridge describes a shared bridge.
type Bridge struct {
	Name    string
	Promisc bool // turn promiscuous mode on; false keeps the current mode

	// The rest is for a new bridge.

	MAC           net.HardwareAddr // nil keeps the one that the kernel chooses
	MTU           int              // bytes; 0 is the kernel's default
	VLANFiltering bool             // forward by VLAN
}

// EnsureBridge finds or creates a bridge and sets it up. An existing bridge keeps its
// configuration. Rollback reverts nothing, because a bridge is in use by other attachments as soon
// as it exists. The error wraps [ErrNotBridge] if the link is of another kind.
//
// A new bridge keeps the MAC address that the kernel or b chose for it. Otherwise it would take the
// address of a port, and neighbours would lose the bridge together with that port. It gets its
// link-local address at once. The kernel assigns that address when the link has a carrier, which a
// bridge without ports has only until its first port joins or its MAC address is set.
func (s Links) EnsureBridge(b Bridge) (bridge Link, created bool, err error) {
	bridge, err = s.ByName(b.Name)
	if errors.Is(err, ErrNoLink) {
		err = s.space.tx.Do("add bridge "+b.Name, func() error {
			err := s.space.rt.Links.AddBridge(netlink.Bridge{Name: b.Name, MTU: b.MTU, VLANFiltering: b.VLANFiltering})
			if errors.Is(err, unix.EEXIST) { // another process was faster
				return nil
			}
			created = err == nil
			return err
		}, nil)
		if err == nil {
			bridge, err = s.ByName(b.Name)
		}
		if err == nil {
			err = s.space.Sysctl.Ensure([]Setting{NoDAD(b.Name)})
		}
	}
	if err != nil {
		return Link{}, created, err
	}
	if bridge.Kind != "bridge" {
		return Link{}, created, fmt.Errorf("link %q is a %s: %w", b.Name, bridge.Kind, ErrNotBridge)
	}
	if created && b.MAC != nil {
		bridge.MAC = b.MAC
	}
	promisc := func() error {
		changed, err := s.space.rt.Links.SetPromisc(bridge, true)
		if changed && err == nil {
			bridge.Promisc++
		}
		return err
	}
	for _, step := range []struct {
		needed bool
		op     string
		apply  func() error
	}{
		{b.Promisc, "promisc true dev ", promisc},
		{!bridge.Up, "up ", func() error { return s.space.rt.Links.SetUp(bridge, true) }},
		{created, "keep mac dev ", func() error { return s.space.rt.Links.SetMAC(bridge, bridge.MAC) }},
	} {
		if step.needed {
			if err := s.space.tx.Do(step.op+b.Name, step.apply, nil); err != nil {
				return Link{}, created, err
			}
		}
	}
	bridge.Up = true
	return bridge, created, nil
}

// MinMTU6 is the least MTU of an interface with IPv6, in bytes (RFC 8200, section 5). The kernel
// removes all IPv6 addresses and settings from an interface with a smaller one (IPV6_MIN_MTU).
const MinMTU6 = 1280

// KeepMTU makes the kernel keep the MTU of a bridge, for good, when a port with a smaller MTU joins.
// The kernel otherwise lowers it to the least MTU of all ports, and below 1280 bytes removes the
// bridge's IPv6 addresses. It keeps an MTU that was set, but ignores one that is set already;
// therefore KeepMTU sets another first (br_mtu_auto_adjust and br_change_mtu in net/bridge).
func (s *Space) KeepMTU(bridge Link) error {
	other := bridge.MTU - 1
	if bridge.MTU <= MinMTU6 {
		other = bridge.MTU + 1
	}
	return s.tx.Do(fmt.Sprintf("keep mtu %d dev %s", bridge.MTU, bridge.Name), func() error {
		err := s.rt.Links.SetMTU(bridge, other)
		return errors.Join(err, s.rt.Links.SetMTU(bridge, bridge.MTU))
	}, nil)
}

// SetMaster makes port a port of bridge, or of no bridge if bridge is the zero Link. Rollback
// restores the former master.
func (s Links) SetMaster(port, bridge Link) error {
	return s.space.tx.Do(fmt.Sprintf("master %s dev %s", bridge.Name, port.Name),
		func() error { return s.space.rt.Links.SetMaster(port, bridge.Index) },
		func() error { return present(s.space.rt.Links.SetMaster(port, port.Master)) })
}

// Port is the configuration of a bridge port.
type Port = netlink.Port

// SetPort configures a port of a bridge. The configuration ends with the membership, so Rollback of
// [Links.SetMaster] reverts it.
func (s Links) SetPort(port Link, p Port) error {
	return s.space.tx.Do(fmt.Sprintf("port %s hairpin %t isolated %t", port.Name, p.Hairpin, p.Isolated),
		func() error { return s.space.rt.Links.SetPort(port, p) }, nil)
}
