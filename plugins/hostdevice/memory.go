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

// loan is what is remembered of a device as long as a container has it.
type loan struct {
	kernel.NamespaceRef // where it was moved to

	// The attachment that has the device. Its network is left out, because the administrator may rename it.
	Container string `json:"containerID,omitempty"`
	IfName    string `json:"ifName,omitempty"`

	// What it was in the host.
	Name      string         `json:"name"`
	Alias     string         `json:"alias,omitempty"`
	HostIndex int            `json:"hostIndex,omitempty"`
	Up        bool           `json:"up,omitempty"`
	MTU       int            `json:"mtu,omitempty"` // bytes
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`

	// What it is wherever it is.
	Kind    string `json:"kind"`
	Device  string `json:"device,omitempty"`
	PermMAC string `json:"permanentMAC,omitempty"`
	Index   int    `json:"index"` // in the container
}

// is reports whether a link is the device: what is hardware has an identity, of others the kernel knows what it was given.
// The container may have renamed it, and changed its address.
func (x *loan) is(l kernel.Link) bool {
	if l.Kind != x.Kind {
		return false
	}
	if x.Device != "" || x.PermMAC != "" {
		return l.Device == x.Device && l.PermMAC.String() == x.PermMAC
	}
	return l.Alias == x.Name || l.Index == x.Index && l.MAC.String() == x.MAC
}

// in finds the device in a space.
func (x *loan) in(space *kernel.Space) (l kernel.Link, found bool, err error) {
	links, err := space.Links.All()
	i := slices.IndexFunc(links, x.is)
	if err != nil || i < 0 {
		return kernel.Link{}, false, err
	}
	return links[i], true, nil
}

// memory is what is remembered, by owner. A device that is in the host has no loan: who finds one there with a loan
// settles that first.
type memory struct {
	*attach.Session
	loans ledger.Ledger
}

// open opens the memory. It is for one at a time on this host, until unlock is called.
func (c *Config) open(s *attach.Session) (m *memory, unlock func(), err error) {
	id, err := statefile.BootID()
	if err != nil {
		return nil, nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	unlock, err = s.Host.Exclusive()
	return &memory{s, ledger.Ledger{Dir: cmp.Or(c.DataDir, defaultDataDir), Boot: id}}, unlock, err
}

func (m *memory) owner() string { return string(m.Attachment().Owner()) }

// own returns the loan of the attachment and its owner. A loan for another network counts if container and interface are
// the same, and its namespace too, unless that no longer exists: the network has been renamed.
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

// lend gives the container a device of the host.
func (m *memory) lend(l kernel.Link) (kernel.Link, error) {
	if m.has(m.owner()) {
		return l, fmt.Errorf("host device %s: the attachment has one already", l.Name)
	}
	addresses, err := m.Host.Addrs.Kept(l)
	if err != nil {
		return l, err
	}
	x := &loan{
		NamespaceRef: m.Sandbox.NS.Ref(), Container: m.ContainerID, IfName: m.IfName, Name: l.Name, Alias: l.Alias, HostIndex: l.Index, Up: l.Up, MTU: l.MTU, MAC: l.MAC.String(),
		Addresses: addresses, Kind: l.Kind, Device: l.Device, PermMAC: l.PermMAC.String(), Index: l.Index,
	}
	if err := m.remember(x); err != nil {
		return l, err
	}
	if err := m.Host.Links.SetAlias(l, l.Name); err != nil { // as the reference plugin, which can take over
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

// has reports whether the device of a loan is where it was moved to.
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

// enter opens the namespace of a loan, nil if it is gone. Where its path is, the caller may know better.
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

// claimed reports whether a link in that namespace is that of a loan, whoever has it.
func (m *memory) claimed(l kernel.Link, in *kernel.Space) bool {
	owners, err := m.loans.Names()
	return err != nil || slices.ContainsFunc(owners, func(owner string) bool {
		x := m.read(owner)
		return x != nil && x.ID == in.NS.ID() && x.is(l)
	})
}

// read returns a loan, nil if there is none. One that is broken counts as none.
func (m *memory) read(owner string) *loan {
	x := new(loan)
	ok, err := m.loans.Read(owner, x)
	if err != nil {
		m.Log.Warn("what the device was in the host is not known", "err", err)
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
