package hostdevice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove returns the devices of deleted attachments to the host.
func (c *Config) Remove(
	_ context.Context, s *attach.Session, gone attach.Gone, deleteLinks func() error,
) error {
	if gone.All() {
		return errors.Join(deleteLinks(), c.collect(s, gone))
	}
	memory, unlock, err := c.open(s)
	if err != nil {
		return err
	}
	defer unlock()
	owner, x, err := memory.own()
	if err != nil {
		return err
	}
	if x == nil {
		if x, err = c.unremembered(memory); err != nil || x == nil {
			return errors.Join(err, memory.forget(memory.owner()))
		}
		if err := memory.remember(x); err != nil {
			return err
		}
	}
	return memory.endLoan(owner, x)
}

// collect implements Remove for GC.
func (c *Config) collect(s *attach.Session, gone attach.Gone) error {
	memory, unlock, err := c.open(s)
	if err != nil {
		return err
	}
	defer unlock()
	owners, err := memory.loans.Names()
	errs := []error{err, memory.loans.RemoveDrafts(func(string) bool { return true })}
	for _, owner := range owners {
		if !gone.Owner(cni.Owner(owner)) {
			continue
		}
		x := memory.read(owner)
		if x == nil {
			errs = append(errs, memory.forget(owner))
			continue
		}
		errs = append(errs, memory.endLoan(owner, x))
	}
	return errors.Join(errs...)
}

// endLoans ends the loans of devices that are already in the host, because the kernel moved them when
// their namespace ended or because an ADD or DEL was killed.
func (m *memory) endLoans() error {
	owners, err := m.loans.Names()
	errs := []error{err}
	for _, owner := range owners {
		x := m.read(owner)
		if x == nil {
			continue
		}
		l, found, err := x.in(m.Host)
		if found && err == nil {
			err = m.end(owner, x, l)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// endLoan ends a loan, in whichever namespace the device is.
func (m *memory) endLoan(owner string, x *loan) error {
	l, found, err := m.fetch(x)
	if err == nil && !found {
		l, found, err = x.in(m.Host)
	}
	switch {
	case err != nil:
		return err
	case found:
		return m.end(owner, x, l)
	case x.Kind == physical:
		m.Log.Warn(
			"device is neither in the container nor in the host; GC or the next ADD will look "+
				"for it again", "name", x.Name)
		return nil
	}
	return m.forget(owner) // the kernel deleted it with its namespace
}

// physical is the kind of links that outlive their namespace: the kernel moves them to the initial
// one some time later.
const physical = "device"

// fetch moves the device from the namespace of its loan to the host, if both still exist.
func (m *memory) fetch(x *loan) (kernel.Link, bool, error) {
	space, err := m.enter(x)
	if err != nil || space == nil {
		return kernel.Link{}, false, err
	}
	defer m.leave(space)
	l, found, err := x.in(space)
	if err != nil || !found {
		return l, false, err
	}
	if err := x.dropRules(space); err != nil {
		return l, false, err
	}
	m.Tx.Keep() // roll back only the move
	fetched, err := m.Host.Links.Fetch(l, space, x.Name, x.HostIndex)
	if err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = cni.Rephrase(err, "failed to move %q to hostNS: file exists", x.Name)
		}
		return l, false, errors.Join(err, m.Tx.Rollback())
	}
	m.Tx.Keep()
	if len(fetched.AltNames) < len(l.AltNames) {
		m.Log.Warn("device loses alternative names that are in use in the host", "name", x.Name,
			"had", l.AltNames, "has", fetched.AltNames)
	}
	return fetched, true, nil
}

// end restores the state of a device that is in the host, and ends the loan. After an error it can
// be repeated.
func (m *memory) end(owner string, x *loan, l kernel.Link) error {
	if l.Name != x.Name {
		if err := m.Host.Links.Down(l); err != nil {
			return err
		}
		l.Up = false
		if err := m.Host.Links.Rename(l, x.Name); err != nil {
			return err
		}
		l.Name = x.Name
	}
	if err := m.restore(x, l); err != nil {
		return err
	}
	return m.forget(owner)
}

// restore gives the device its former properties. Properties that the kernel refuses are logged and
// skipped, because the kernel would refuse them again and DEL would never succeed.
func (m *memory) restore(x *loan, l kernel.Link) error {
	have, err := m.Host.Addrs.Of(l)
	if err != nil {
		return err
	}
	var steps []func() error
	if l.Alias != x.Alias {
		steps = append(steps, func() error { return m.Host.Links.SetAlias(l, x.Alias) })
	}
	if x.MTU != 0 && l.MTU != x.MTU {
		steps = append(steps, func() error { return m.Host.Links.SetMTU(l, x.MTU) })
	}
	if mac, err := net.ParseMAC(x.MAC); err == nil && !slices.Equal(l.MAC, mac) {
		steps = append(steps, func() error { return m.Host.Links.SetMAC(l, mac) })
	}
	if x.Up && !l.Up {
		steps = append(steps, func() error { return m.Host.Links.Up(l) })
	}
	for _, a := range x.Addresses {
		if !slices.Contains(have, a) {
			steps = append(steps, func() error { return m.Host.Addrs.Add(l, a) })
		}
	}
	for _, step := range steps {
		err := step()
		if session.Refused(err) {
			m.Log.Warn("cannot restore a property of the device", "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unremembered finds a device that the upstream plugin has moved: its alias is its name in the
// host. It ignores an interface of the container's own that has the name: KubeVirt renames the
// device and gives its name to a bridge.
func (c *Config) unremembered(memory *memory) (*loan, error) {
	s := memory.Sandbox
	if s == nil {
		return c.fallen(memory)
	}
	l, err := s.Links.ByName(memory.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return c.fallen(memory)
	}
	if err != nil {
		return nil, err
	}
	if l.Alias == "" && c.returned(memory) {
		return nil, nil
	}
	return c.aliased(memory, l)
}

// returned reports whether the device of the configuration is in the host, so that the container
// has none.
func (c *Config) returned(memory *memory) bool {
	w, err := c.wanted()
	if err != nil || w.dpdk {
		return false
	}
	_, err = c.sys.find(memory.Host, w)
	return err == nil
}

// aliased returns the loan of a link in the container that has an alias.
func (c *Config) aliased(memory *memory, l kernel.Link) (*loan, error) {
	w, err := c.wanted()
	_, tagged := cni.ParseTag(l.Alias)
	if tagged || memory.claimed(l, memory.Sandbox) {
		return nil, nil // it belongs to another attachment
	}
	if l.Alias == "" {
		if err != nil || w.dpdk {
			return nil, nil
		}
		return nil, cni.Errorf(cni.CodeInternal,
			"failed to find original ifname for %q (alias is not set)", l.Name).
			WithDetails("interface " + l.Name + " was not moved here by host-device").Verbatim()
	}
	if err := cni.ValidateIfName(l.Alias); err != nil {
		return nil, fmt.Errorf(
			"interface %s: its alias is not a valid name of a device in the host: %w", l.Name, err)
	}
	x := aliasLoan(l)
	x.NamespaceRef = memory.Sandbox.NS.Ref()
	return x, nil
}

// fallen looks in the host for a device that the kernel moved there, under its name in the
// container, when the namespace ended. It returns the device only if it is the one of the
// configuration and down, so that there is no doubt.
func (c *Config) fallen(memory *memory) (*loan, error) {
	l, err := memory.Host.Links.ByName(memory.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return nil, nil
	}
	w, unclear := c.wanted()
	if err != nil || unclear != nil || w.dpdk || l.Up || l.Name == l.Alias ||
		cni.ValidateIfName(l.Alias) != nil {
		return nil, err
	}
	own := w.name == l.Alias
	if w.name == "" {
		chosen, err := c.sys.find(memory.Host, w)
		own = err == nil && chosen.Index == l.Index
	}
	if !own {
		return nil, nil
	}
	return aliasLoan(l), nil
}

// aliasLoan returns the loan that follows from an alias.
func aliasLoan(l kernel.Link) *loan {
	return &loan{Name: l.Alias, Kind: l.Kind, Device: l.Device, PermMAC: l.PermMAC.String(),
		Index: l.Index, MAC: l.MAC.String()}
}
