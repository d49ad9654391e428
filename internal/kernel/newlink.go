package kernel

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// NewLink describes a new link without a peer; see [netlink.NewLink] for the fields of each kind.
type NewLink struct {
	Name  string
	Kind  string           // "macvlan", "ipvlan", "vlan", "dummy", "vrf", "ifb", "vxlan"
	Alias string           // names the owner
	MAC   net.HardwareAddr // nil lets the kernel choose, or use the parent's
	MTU   int              // bytes; 0 is the kernel's default, or the parent's

	Parent      Link   // the zero Link for kinds without a parent
	ParentSpace *Space // where the parent is

	Mode       string // macvlan, ipvlan
	BCQueueLen uint32 // macvlan: packets; 0 is the kernel's default
	VLAN       uint16 // VLAN: its ID
	Table      uint32 // VRF: its routing table
	VXLAN      VXLAN  // VXLAN: the tunnel
}

// Add creates a link in this space, immediately under its name, and down. If the name is in use, or
// the parent already has the VLAN ([VLANInUseError]), the error wraps [unix.EEXIST].
func (s Links) Add(n NewLink) (Link, error) {
	l := netlink.NewLink{
		Name: n.Name, Kind: n.Kind, MAC: n.MAC, MTU: n.MTU, Mode: n.Mode, BCQueueLen: n.BCQueueLen, VLAN: n.VLAN, Table: n.Table,
		VXLAN: n.VXLAN,
	}
	op := fmt.Sprintf("add %s %s", n.Kind, n.Name)
	if n.Parent.Index != 0 {
		l.Parent, l.ParentNS = n.Parent.Index, n.ParentSpace.NS
		op += " on " + n.Parent.Name
	}
	if n.Parent.Index != 0 && !n.ParentSpace.NS.Same(s.space.NS) {
		if err := n.ParentSpace.rt.Identify(s.space.NS); err != nil { // for onParent
			return Link{}, err
		}
	}
	made := Link{Name: n.Name}
	err := s.space.tx.Do(op,
		func() (err error) {
			made.Index, err = s.space.addLink(n, l)
			if s.space.inTheWay(n, err) {
				err = n.ParentSpace.retryOn(n.Parent, func() (bool, error) {
					made.Index, err = s.space.addLink(n, l)
					return s.space.inTheWay(n, err), err
				})
			}
			return err
		},
		func() error { return errorOf(s.space.rt.Links.Delete(made)) })
	if err != nil {
		return Link{}, err
	}
	link, err := s.ByIndex(made.Index) // made is for the undo
	if err != nil || n.Alias == "" {
		return link, err
	}
	if err := s.SetAlias(link, n.Alias); err != nil {
		return Link{}, err
	}
	link.Alias = n.Alias
	return link, nil
}

func (s *Space) addLink(n NewLink, l netlink.NewLink) (index int, err error) {
	index, err = s.rt.Links.Add(l)
	if errors.Is(err, unix.EEXIST) {
		return s.addAnyway(n, l, err)
	}
	return index, err
}

// inTheWay reports whether Add failed because of a link on the parent that no longer has a
// namespace: either it has the VLAN, or it or the new link needs the parent exclusively.
func (s *Space) inTheWay(n NewLink, err error) bool {
	if inUse := (*VLANInUseError)(nil); errors.As(err, &inUse) {
		return inUse.Link.Index == 0 || n.Alias != "" && inUse.Link.Alias == n.Alias && !inUse.Here
	}
	if n.Kind != "macvlan" || !errors.Is(err, unix.EINVAL) {
		return false
	}
	parent, err := n.ParentSpace.Links.ByIndex(n.Parent.Index)
	if err != nil || n.Mode != "passthru" && parent.Promisc == 0 {
		return false
	}
	_, _, found := n.ParentSpace.onParent(parent.Index, func(l Link) bool { return l.Kind == "macvlan" && (n.Alias == "" || l.Alias != n.Alias) })
	return !found
}

// addAnyway handles a link that could not be created because something exists: its name here, its
// VLAN on the parent, or its name in the namespace of the parent, where kernels before 6.15 create
// the link before they move it here.
func (s *Space) addAnyway(n NewLink, l netlink.NewLink, cause error) (index int, err error) {
	if inUse := s.nameInUse(n.Name, cause); inUse != nil {
		return 0, inUse
	}
	if n.ParentSpace != nil && n.ParentSpace.nameInUse(n.Name, cause) != nil {
		l.Name = TemporaryName(n.Alias)
		index, cause = s.rt.Links.Add(l)
		if cause == nil {
			if err := s.rt.Links.Rename(Link{Index: index}, n.Name); err != nil {
				return 0, errors.Join(err, errorOf(s.rt.Links.Delete(Link{Index: index})))
			}
			return index, nil
		}
	}
	if n.Kind == "vlan" && errors.Is(cause, unix.EEXIST) {
		return 0, n.ParentSpace.vlanInUse(n.Parent, n.VLAN, cause)
	}
	return 0, cause
}

// TemporaryName returns the name that a link of an owner may have in its namespace for a moment
// before it gets its own. A killed process leaves the link under that name.
func TemporaryName(owner string) string {
	h := fnv.New64a()
	h.Write([]byte(owner))
	return fmt.Sprintf("tmp%012x", h.Sum64()>>16)
}
