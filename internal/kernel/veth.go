package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Veth describes a new veth pair (veth(4)): the inner end is in the space that creates it, the
// outer end in Host.
type Veth struct {
	Name     string           // of the inner end
	MAC      net.HardwareAddr // of the inner end; nil lets the kernel choose, as for the outer end
	MTU      int              // bytes, of both ends; 0 is the kernel's default
	Host     *Space           // of the outer end
	HostName string           // of the outer end
	Alias    string           // of the outer end; names the owner
}

// AddVeth creates a veth pair, both ends in their namespaces immediately under their names, and
// down. If a name is in use, the error says which one and where, and wraps [unix.EEXIST]. Rollback
// deletes the pair.
//
// AddVeth first deletes, for good, a pair of the same owner in another namespace. The owner has
// lost that namespace, and the kernel may still be deleting it, some time after its last user has
// gone.
func (s Links) AddVeth(v Veth) (inside, host Link, err error) {
	pair := Link{Name: v.Name}
	err = s.space.tx.Do(fmt.Sprintf("add veth %s (peer %s)", v.Name, v.HostName),
		func() (err error) {
			pair.Index, err = s.space.addVeth(v)
			return err
		},
		func() error { return errorOf(s.space.rt.Links.Delete(pair)) })
	if err != nil {
		return Link{}, Link{}, err
	}
	if inside, err = s.ByIndex(pair.Index); err != nil {
		return Link{}, Link{}, err
	}
	if host, err = v.Host.Links.ByIndex(inside.Peer); err != nil {
		return Link{}, Link{}, fmt.Errorf("peer of %s: %w", v.Name, err)
	}
	if v.Alias != "" {
		if err := v.Host.Links.SetAlias(host, v.Alias); err != nil {
			return Link{}, Link{}, err
		}
		host.Alias = v.Alias
	}
	return inside, host, nil
}

func (s *Space) addVeth(v Veth) (index int, err error) {
	create := func() (int, error) {
		return s.rt.Links.AddVeth(netlink.Veth{Name: v.Name, MAC: v.MAC, MTU: v.MTU, Peer: v.HostName, PeerNS: v.Host.NS})
	}
	index, err = create()
	if errors.Is(err, unix.EEXIST) {
		free, failed := s.deleteAbandoned(v)
		if failed != nil {
			return 0, failed
		}
		if free {
			index, err = create()
		}
	}
	if errors.Is(err, unix.EEXIST) {
		err = cmp.Or(errors.Join(s.nameInUse(v.Name, err), v.Host.nameInUse(v.HostName, err)), err)
	}
	return index, err
}

// deleteAbandoned deletes a pair of the same owner if its container-side veth is in another
// namespace. It reports whether both names are free.
func (s *Space) deleteAbandoned(v Veth) (free bool, err error) {
	if _, err := s.Links.ByName(v.Name); !errors.Is(err, ErrNoLink) {
		return false, err
	}
	host, err := v.Host.Links.ByName(v.HostName)
	if errors.Is(err, ErrNoLink) { // the kernel was faster
		return true, nil
	}
	if err != nil || v.Alias == "" || host.Kind != "veth" || host.Alias != v.Alias && host.Alias != "" {
		return false, err
	}
	inside, err := s.Links.ByIndex(host.Peer)
	if err != nil && !errors.Is(err, ErrNoLink) || err == nil && inside.Kind == "veth" && inside.Peer == host.Index {
		return false, err
	}
	_, err = v.Host.rt.Links.Delete(host)
	return err == nil, err
}

// nameInUse wraps cause if the name is in use here, and otherwise returns nil.
func (s *Space) nameInUse(name string, cause error) error {
	if _, err := s.Links.ByName(name); err != nil {
		return nil
	}
	return fmt.Errorf("link %q exists in %s: %w", name, s.NS, cause)
}

// Peer returns the peer of inside, a veth in another namespace, if the peer is in this space.
// Otherwise the error wraps [ErrNoLink].
func (s Links) Peer(inside Link) (Link, error) {
	if inside.Kind != "veth" || inside.Peer == 0 {
		return Link{}, fmt.Errorf("link %q: %w: it is not a veth", inside.Name, ErrNoLink)
	}
	peer, err := s.ByIndex(inside.Peer)
	if err == nil && (peer.Kind != "veth" || peer.Peer != inside.Index) {
		err = fmt.Errorf("link %q: %w: its peer is not in the host namespace", inside.Name, ErrNoLink)
	}
	return peer, err
}
