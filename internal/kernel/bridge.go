package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// ErrNotBridge says that the link of that name is not a bridge.
var ErrNotBridge = errors.New("not a bridge")

// Bridge describes a bridge to be shared.
type Bridge struct {
	Name    string
	MTU     int  // bytes, if it has to be made; 0 is the kernel's default
	Promisc bool // demand promiscuous mode; false leaves it as it is

	VLANFiltering bool // forward by VLAN, if it has to be made
}

// EnsureBridge finds or makes a bridge and sets it up. A bridge that exists keeps its configuration. Others may use
// it from the moment it exists, so nothing of this is undone. The error wraps [ErrNotBridge] if the link is of
// another kind.
//
// A bridge that is made keeps the MAC address that the kernel has chosen for it: otherwise it would take one of its ports',
// and neighbours would lose it with that port. It has its link-local address at once. The kernel assigns that when the link
// has a carrier, which a bridge without ports has only until its first port joins or its MAC address is set.
func (s Links) EnsureBridge(b Bridge) (bridge Link, created bool, err error) {
	bridge, err = s.ByName(b.Name)
	if errors.Is(err, ErrNoLink) {
		err = s.space.tx.Do("add bridge "+b.Name, func() error {
			err := s.space.rt.Links.AddBridge(netlink.Bridge{Name: b.Name, MTU: b.MTU, VLANFiltering: b.VLANFiltering})
			if errors.Is(err, unix.EEXIST) { // somebody was faster
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

// SetMaster makes port a port of bridge, or of none if that is the zero Link. Undone by giving it the master it had.
func (s Links) SetMaster(port, bridge Link) error {
	return s.space.tx.Do(fmt.Sprintf("master %s dev %s", bridge.Name, port.Name),
		func() error { return s.space.rt.Links.SetMaster(port, bridge.Index) },
		func() error { return present(s.space.rt.Links.SetMaster(port, port.Master)) })
}

// Port is the configuration of a bridge port.
type Port = netlink.Port

// SetPort configures a port of a bridge. It lasts as long as port is one, so it is undone with [Links.SetMaster].
func (s Links) SetPort(port Link, p Port) error {
	return s.space.tx.Do(fmt.Sprintf("port %s hairpin %t isolated %t", port.Name, p.Hairpin, p.Isolated),
		func() error { return s.space.rt.Links.SetPort(port, p) }, nil)
}
