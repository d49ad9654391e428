package linux

import (
	"net"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// Namespace is a network namespace during a call.
type Namespace struct{ space *kernel.Space }

// namespace returns nil for a space that is not open.
func namespace(s *kernel.Space) *Namespace {
	if s == nil {
		return nil
	}
	return &Namespace{s}
}

// Link finds a link by its name or by an alternative name. The error wraps [ErrNoLink] if there is
// none.
func (n *Namespace) Link(name string) (Link, error) {
	l, err := n.space.Links.ByName(name)
	return n.link(l), err
}

// LinkByIndex finds a link by its index. The error wraps [ErrNoLink] if there is none.
func (n *Namespace) LinkByIndex(index int) (Link, error) {
	l, err := n.space.Links.ByIndex(index)
	return n.link(l), err
}

// Links lists all links.
func (n *Namespace) Links() ([]Link, error) {
	all, err := n.space.Links.All()
	list := make([]Link, 0, len(all))
	for _, l := range all {
		list = append(list, n.link(l))
	}
	return list, err
}

// NewLink describes a link to be made.
type NewLink struct {
	Name  string           // 1 to 15 bytes
	Kind  string           // of rtnetlink: "macvlan", "ipvlan", "vlan", "dummy", "vrf" or "ifb"
	Alias string           // the owner; [Session.AddLink] sets it to [Session.Tag]
	MAC   net.HardwareAddr // nil lets the kernel choose
	MTU   int              // bytes; 0 is the MTU of Parent, or the kernel's default

	Parent Link   // macvlan, ipvlan, vlan: the link to make it on, in whichever namespace that is
	Mode   string // macvlan, ipvlan: see ip-link(8); required for both
	VLAN   uint16 // vlan: the VLAN's ID
	Table  uint32 // vrf: its routing table
}

// AddLink makes a link, down. The error wraps [syscall.EEXIST] if the name is in use. Undone by
// deleting the link.
//
// DEL deletes the container's interface only; a [Remover] deletes other links. GC also deletes
// links of the host with the tag of an attachment that is gone as their alias.
func (n *Namespace) AddLink(l NewLink) (Link, error) {
	made, err := n.space.Links.Add(l.inner())
	return n.link(made), err
}

func (l NewLink) inner() kernel.NewLink {
	inner := kernel.NewLink{
		Name: l.Name, Kind: l.Kind, Alias: l.Alias, MAC: l.MAC, MTU: l.MTU,
		Parent: l.Parent.inner, Mode: l.Mode, VLAN: l.VLAN, Table: l.Table,
	}
	if l.Parent.in != nil {
		inner.ParentSpace = l.Parent.in.space
	}
	return inner
}

// Sysctl returns the value of a kernel setting in the namespace, such as net.ipv4.ip_forward. The
// error wraps [fs.ErrNotExist] if there is no such setting.
func (n *Namespace) Sysctl(key string) (value string, err error) { return n.space.Sysctl.Read(key) }

// SetSysctl sets a kernel setting in the namespace, unless it has the value. Undone by setting the
// value before. The error wraps [fs.ErrNotExist] if there is no such setting.
func (n *Namespace) SetSysctl(key, value string) error { return n.space.Sysctl.Set(key, value) }

// EnsureSysctl is SetSysctl for a setting that attachments share, such as forwarding on the host:
// it is not undone.
func (n *Namespace) EnsureSysctl(key, value string) error {
	return n.space.Sysctl.Ensure([]kernel.Setting{{Key: key, Value: value}})
}

// Run calls f on a thread in the namespace. Sockets that f opens stay in it. f must not start a
// goroutine that needs the namespace. Changes that f makes are not undone: see [Session.Do].
func (n *Namespace) Run(f func() error) error { return n.space.NS.Run(f) }
