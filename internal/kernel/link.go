package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Link is a snapshot of a link (network interface). Methods that take a Link identify it by its
// index and use the other fields only as the former state.
type Link = netlink.Link

// OperState is the operational state of a link (RFC 2863).
type OperState = netlink.OperState

// The operational states that matter here; see [netlink.OperState] for all.
const (
	OperDown = netlink.OperDown
	OperUp   = netlink.OperUp
)

// ErrNoLink reports that a link does not exist.
var ErrNoLink = netlink.ErrNoLink

// ByName finds a link by its name or by an alternative name; only alternative names may be longer
// than 15 bytes. The error wraps [ErrNoLink] if there is none.
func (s Links) ByName(name string) (Link, error) { return s.space.rt.Links.ByName(name) }

// ByIndex finds a link by its index. The error wraps [ErrNoLink] if there is none.
func (s Links) ByIndex(index int) (Link, error) { return s.space.rt.Links.ByIndex(index) }

// PeerLives reports whether the namespace of the peer of a link still has a user. It returns true
// if the peer is in this namespace, and for a link without a peer.
func (s Links) PeerLives(l Link) (bool, error) {
	switch {
	case l.Peer == 0:
		return true, nil
	case l.PeerNSID >= 0:
		return s.space.rt.Lives(l.PeerNSID)
	}
	// The kernel reports no identifier for this namespace, nor for a namespace that it is deleting.
	peer, err := s.ByIndex(l.Peer)
	if errors.Is(err, ErrNoLink) {
		return false, nil
	}
	return err == nil && peer.Kind == l.Kind && peer.Peer == l.Index, err
}

// All lists all links.
func (s Links) All() ([]Link, error) { return s.space.rt.Links.All() }

// Up sets a link up. Rollback sets it down if l was down.
func (s Links) Up(l Link) error {
	undo := func() error { return present(s.space.rt.Links.SetUp(l, false)) }
	if l.Up {
		undo = nil
	}
	return s.space.tx.Do("up "+l.Name, func() error { return s.space.rt.Links.SetUp(l, true) }, undo)
}

// Down sets a link down. Rollback sets it up if l was up.
func (s Links) Down(l Link) error {
	undo := func() error { return present(s.space.rt.Links.SetUp(l, true)) }
	if !l.Up {
		undo = nil
	}
	return s.space.tx.set("down "+l.Name, func() error { return s.space.rt.Links.SetUp(l, false) }, undo)
}

// SetAlias sets the alias of a link, up to 255 bytes; an empty one removes it. Rollback restores
// l.Alias.
func (s Links) SetAlias(l Link, alias string) error {
	return s.space.tx.set(fmt.Sprintf("alias %q dev %s", alias, l.Name),
		func() error { return s.space.rt.Links.SetAlias(l, alias) },
		func() error { return present(s.space.rt.Links.SetAlias(l, l.Alias)) })
}

// SetMAC sets the MAC address of a link. For a bridge, the kernel then stops deriving the address
// from the ports. Rollback restores l.MAC, if there was one.
func (s Links) SetMAC(l Link, mac net.HardwareAddr) error {
	undo := func() error { return present(s.space.rt.Links.SetMAC(l, l.MAC)) }
	if l.MAC == nil {
		undo = nil
	}
	return s.space.tx.set(fmt.Sprintf("mac %s dev %s", mac, l.Name), func() error { return s.space.rt.Links.SetMAC(l, mac) }, undo)
}

// EnsureMAC is SetMAC for a shared link. Rollback does not revert it.
func (s Links) EnsureMAC(l Link, mac net.HardwareAddr) error {
	return s.space.tx.Do(fmt.Sprintf("mac %s dev %s", mac, l.Name), func() error { return s.space.rt.Links.SetMAC(l, mac) }, nil)
}

// SetPromisc turns promiscuous mode of a link on or off, independently of packet captures and other
// users.
func (s Links) SetPromisc(l Link, on bool) error {
	changed := false
	return s.space.tx.set(fmt.Sprintf("promisc %t dev %s", on, l.Name),
		func() (err error) {
			changed, err = s.space.rt.Links.SetPromisc(l, on)
			return err
		},
		func() error {
			if !changed {
				return nil
			}
			_, err := s.space.rt.Links.SetPromisc(l, !on)
			return present(err)
		})
}

// SetAllMulticast turns the reception of all multicast on or off. Rollback restores l.AllMulticast.
func (s Links) SetAllMulticast(l Link, on bool) error {
	return s.space.tx.set(fmt.Sprintf("allmulticast %t dev %s", on, l.Name),
		func() error { return s.space.rt.Links.SetAllMulticast(l, on) },
		func() error { return present(s.space.rt.Links.SetAllMulticast(l, l.AllMulticast)) })
}

// SetMTU sets the MTU of a link, in bytes. Rollback restores l.MTU.
func (s Links) SetMTU(l Link, mtu int) error {
	return s.space.tx.set(fmt.Sprintf("mtu %d dev %s", mtu, l.Name),
		func() error { return s.space.rt.Links.SetMTU(l, mtu) },
		func() error { return present(s.space.rt.Links.SetMTU(l, l.MTU)) })
}

// SetTxQLen sets the length of a link's transmit queue, in packets. Rollback restores l.TxQLen.
func (s Links) SetTxQLen(l Link, packets int) error {
	return s.space.tx.set(fmt.Sprintf("txqueuelen %d dev %s", packets, l.Name),
		func() error { return s.space.rt.Links.SetTxQLen(l, packets) },
		func() error { return present(s.space.rt.Links.SetTxQLen(l, l.TxQLen)) })
}

// Delete deletes a link. It succeeds if the link does not exist. Rollback does not restore it.
func (s Links) Delete(l Link) error {
	return s.space.tx.Do("delete link "+l.Name,
		func() error { return errorOf(s.space.rt.Links.Delete(l)) }, nil)
}

// WaitUp waits until the operational state of l is up. If ctx is done before, the error names the
// state.
func (s Links) WaitUp(ctx context.Context, l Link) error { return s.space.rt.Links.WaitUp(ctx, l) }

// present returns err, or nil if it means that the link no longer exists.
func present(err error) error {
	if errors.Is(err, ErrNoLink) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
