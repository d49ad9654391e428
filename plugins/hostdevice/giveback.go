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

// Remove gives the host back the devices of attachments that are gone.
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
	return memory.settleOne(owner, x)
}

// collect is Remove for GC.
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
		errs = append(errs, memory.settleOne(owner, x))
	}
	return errors.Join(errs...)
}

// settle ends the loans of devices that are in the host: they fell back when their namespace ended, or an ADD or DEL was
// killed. After that nobody has a claim to them.
func (m *memory) settle() error {
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

// settleOne ends a loan, wherever the device is.
func (m *memory) settleOne(owner string, x *loan) error {
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
		m.Log.Warn("the device is neither in the container nor in the host: GC or the next ADD will look again", "name", x.Name)
		return nil
	}
	return m.forget(owner) // it went with its namespace
}

// physical is the kind of links that do not end with their namespace: some time after it they are in the initial one.
const physical = "device"

// fetch moves the device back from the namespace of its loan, if both are there.
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
	m.Tx.Keep() // only the move is taken back
	fetched, err := m.Host.Links.Fetch(l, space, x.Name, x.HostIndex)
	if err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = cni.Rephrase(err, "failed to move %q to hostNS: file exists", x.Name)
		}
		return l, false, errors.Join(err, m.Tx.Rollback())
	}
	m.Tx.Keep()
	if len(fetched.AltNames) < len(l.AltNames) {
		m.Log.Warn("the device loses alternative names that are in use in the host", "name", x.Name, "had", l.AltNames, "has", fetched.AltNames)
	}
	return fetched, true, nil
}

// end makes the device, which is in the host, what it was, and ends the loan. What fails can be tried again.
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

// restore gives the device what it had, but what the kernel refuses: it would the next time, and DEL would never end.
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
			m.Log.Warn("the device does not get back all it had", "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unremembered finds a device that the reference plugin has moved: its alias is its name in the host.
func (c *Config) unremembered(memory *memory) (*loan, error) {
	if s := memory.Sandbox; s != nil {
		l, err := s.Links.ByName(memory.IfName)
		if err == nil {
			return c.aliased(memory, l)
		}
		if !errors.Is(err, kernel.ErrNoLink) {
			return nil, err
		}
	}
	return c.fallen(memory)
}

// aliased judges the link of the container.
func (c *Config) aliased(memory *memory, l kernel.Link) (*loan, error) {
	w, err := c.wanted()
	_, tagged := cni.ParseTag(l.Alias)
	if tagged || memory.claimed(l, memory.Sandbox) {
		return nil, nil // another attachment's
	}
	if l.Alias == "" {
		if err != nil || w.dpdk {
			return nil, nil
		}
		return nil, cni.Errorf(cni.CodeInternal, "failed to find original ifname for %q (alias is not set)", l.Name).
			WithDetails("host-device has not moved interface " + l.Name + " here").Verbatim()
	}
	if err := cni.ValidateIfName(l.Alias); err != nil {
		return nil, fmt.Errorf("interface %s: its alias is not the name that it had in the host: %w", l.Name, err)
	}
	x := aliasLoan(l)
	x.NamespaceRef = memory.Sandbox.NS.Ref()
	return x, nil
}

// fallen looks for the device in the host, to which it fell back when its namespace ended, under its name in the container.
// That must be without doubt: it is the device of the configuration, and down.
func (c *Config) fallen(memory *memory) (*loan, error) {
	l, err := memory.Host.Links.ByName(memory.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return nil, nil
	}
	w, unclear := c.wanted()
	if err != nil || unclear != nil || w.dpdk || l.Up || l.Name == l.Alias || cni.ValidateIfName(l.Alias) != nil {
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

// aliasLoan is what an alias tells.
func aliasLoan(l kernel.Link) *loan {
	return &loan{Name: l.Alias, Kind: l.Kind, Device: l.Device, PermMAC: l.PermMAC.String(), Index: l.Index, MAC: l.MAC.String()}
}
