package hostdevice

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ledger"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// loan is the record of a device that a container has.
type loan struct {
	kernel.NamespaceRef // the namespace that the device was moved to

	// The attachment that has the device. The network is not recorded, because the administrator
	// may rename it.
	Container string `json:"containerID,omitempty"`
	IfName    string `json:"ifName,omitempty"`

	// The state of the device in the host.
	Name      string         `json:"name"`
	Alias     string         `json:"alias,omitempty"`
	HostIndex int            `json:"hostIndex,omitempty"`
	Up        bool           `json:"up,omitempty"`
	MTU       int            `json:"mtu,omitempty"` // bytes
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`

	// Rules are the policy rules that the container gets with the device.
	Rules []kernel.PolicyRule `json:"rules,omitempty"`

	// The identity of the device.
	Kind    string `json:"kind"`
	Device  string `json:"device,omitempty"`
	PermMAC string `json:"permanentMAC,omitempty"`
	Index   int    `json:"index"` // in the container
}

// is reports whether a link is the device. Hardware has a permanent identity; other links are
// recognised by their alias or by index and MAC address, because the container may have renamed the
// device and changed its address.
func (x *loan) is(l kernel.Link) bool {
	if l.Kind != x.Kind {
		return false
	}
	if x.Device != "" || x.PermMAC != "" {
		return l.Device == x.Device && l.PermMAC.String() == x.PermMAC
	}
	return l.Alias == x.Name || l.Index == x.Index && l.MAC.String() == x.MAC
}

// in returns the device in a space.
func (x *loan) in(space *kernel.Space) (l kernel.Link, found bool, err error) {
	links, err := space.Links.All()
	i := slices.IndexFunc(links, x.is)
	if err != nil || i < 0 {
		return kernel.Link{}, false, err
	}
	return links[i], true, nil
}

// memory is the directory of all loans, by owner. A device in the host has no loan: a call that
// finds one there with a loan ends it first.
type memory struct {
	*attach.Session
	loans ledger.Ledger
}

// open locks the memory for this host until unlock is called.
func (c *Config) open(s *attach.Session) (m *memory, unlock func(), err error) {
	id, err := statefile.BootID()
	if err != nil {
		return nil, nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	unlock, err = s.Host.Exclusive()
	return &memory{s, ledger.Ledger{Dir: cmp.Or(c.DataDir, defaultDataDir), Boot: id}}, unlock, err
}

func (m *memory) owner() string { return string(m.Attachment().Owner()) }

// own returns the loan of the attachment and its owner. A loan of another network counts if
// container and interface are the same, and the namespace is the same or no longer exists: then the
// network has been renamed.
func (m *memory) own() (owner string, x *loan, err error) {
	owner = m.owner()
	if x = m.read(owner); x != nil {
		return owner, x, nil
	}
	others, err := m.loans.Names()
	for _, other := range others {
		x := m.read(other)
		if x == nil || x.Container != m.ContainerID || x.IfName != m.IfName {
			continue
		}
		space, err := m.enter(x)
		if err != nil {
			return owner, nil, err
		}
		here := space == nil || m.Sandbox != nil && space.NS.Same(m.Sandbox.NS)
		m.leave(space)
		if here {
			return other, x, nil
		}
	}
	return owner, nil, err
}

// lend moves a device of the host into the container, which gets rules with it.
func (m *memory) lend(l kernel.Link, rules []kernel.PolicyRule) (kernel.Link, error) {
	if m.has(m.owner()) {
		return l, fmt.Errorf("host device %s: this attachment already has a device", l.Name)
	}
	addresses, err := m.Host.Addrs.Kept(l)
	if err != nil {
		return l, err
	}
	x := &loan{
		NamespaceRef: m.Sandbox.NS.Ref(), Container: m.ContainerID, IfName: m.IfName, Name: l.Name,
		Alias: l.Alias, HostIndex: l.Index, Up: l.Up, MTU: l.MTU, MAC: l.MAC.String(),
		Addresses: addresses, Rules: rules, Kind: l.Kind, Device: l.Device, PermMAC: l.PermMAC.String(),
		Index: l.Index,
	}
	if err := m.remember(x); err != nil {
		return l, err
	}
	// as upstream, so that its plugin can take over
	if err := m.Host.Links.SetAlias(l, l.Name); err != nil {
		return l, err
	}
	l.Alias = l.Name
	in, err := m.Host.Links.Lend(l, m.Sandbox, m.IfName)
	if err == nil && in.Index != l.Index {
		x.Index = in.Index
		err = m.write(x, nil)
	}
	return in, err
}

// has reports whether the device of a loan is in the namespace that it was moved to.
func (m *memory) has(owner string) bool {
	x := m.read(owner)
	if x == nil {
		return false
	}
	space, err := m.enter(x)
	if err != nil || space == nil {
		return false
	}
	defer m.leave(space)
	_, found, err := x.in(space)
	return found && err == nil
}

// enter opens the namespace of a loan, nil if it no longer exists. If the recorded path does not
// lead to it, the caller's namespace is used if it is the same.
func (m *memory) enter(x *loan) (*kernel.Space, error) {
	ns, err := x.NamespaceRef.Open()
	if err == nil {
		space, err := m.Tx.Open(ns)
		if err != nil {
			ns.Close()
		}
		return space, err
	}
	if m.Sandbox != nil && m.Sandbox.NS.ID() == x.ID {
		return m.Sandbox, nil
	}
	return nil, nil
}

func (m *memory) leave(space *kernel.Space) {
	if space != nil && space != m.Sandbox {
		space.Close()
		space.NS.Close()
	}
}

// claimed reports whether a link in that namespace is the device of any loan.
func (m *memory) claimed(l kernel.Link, in *kernel.Space) bool {
	owners, err := m.loans.Names()
	return err != nil || slices.ContainsFunc(owners, func(owner string) bool {
		x := m.read(owner)
		return x != nil && x.ID == in.NS.ID() && x.is(l)
	})
}

// read returns a loan, nil if there is none or if it is damaged.
func (m *memory) read(owner string) *loan {
	x := new(loan)
	ok, err := m.loans.Read(owner, x)
	if err != nil {
		m.Log.Warn("cannot read the state that the device had in the host", "err", err)
	}
	if !ok || err != nil {
		return nil
	}
	return x
}

// remember begins a loan.
func (m *memory) remember(x *loan) error {
	return m.write(x, func() error { return m.loans.Remove(m.owner()) })
}

func (m *memory) write(x *loan, undo func() error) error {
	err := m.Tx.Do("remember "+m.owner(), func() error { return m.loans.Write(m.owner(), x) }, undo)
	if errors.As(err, new(syscall.Errno)) {
		return cni.Errorf(cni.CodeIOFailure, "dataDir: %w", err)
	}
	return err
}

func (m *memory) forget(owner string) error {
	return m.Tx.Do("forget "+owner, func() error { return m.loans.Remove(owner) }, nil)
}
