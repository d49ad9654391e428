// Package firewalld asks firewalld, over the system bus, to let addresses through: at run time they are sources of one of
// its zones. It knows nothing of other firewalls and of why anybody wants it.
package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// What firewalld is called on the bus (firewalld.dbus(5)).
const (
	busName = "org.fedoraproject.FirewallD1"
	object  = "/org/fedoraproject/FirewallD1"
	zones   = "org.fedoraproject.FirewallD1.zone"
)

// Conn is a connection with the system bus, where DBUS_SYSTEM_BUS_ADDRESS says it is or at its usual place.
type Conn struct{ bus *bus }

// Open connects. It fails where there is no bus; whether firewalld is on it is another question. The connection ends with
// the context, too.
func Open(ctx context.Context) (*Conn, error) {
	bus, err := dial(ctx, systemBus())
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return &Conn{bus}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.bus.Close() }

// Running reports whether firewalld is on the bus. It is not started by the question.
func (c *Conn) Running(ctx context.Context) (bool, error) {
	_, err := c.bus.call(ctx, method{driver, driverObject, driver, "GetNameOwner"}, busName)
	if e := new(exception); errors.As(err, &e) && e.name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("system bus: %w", err)
	}
	return true, nil
}

// AddSource adds an address, alone, to a zone. added is false if the zone had it.
func (c *Conn) AddSource(ctx context.Context, zone string, a netip.Addr) (added bool, err error) {
	_, err = c.call(ctx, "addSource", zone, a)
	if says(err, "ZONE_ALREADY_SET") {
		return false, nil
	}
	return err == nil, err
}

// ErrRefused means that firewalld answered that it does not remove a source, and that the source is still in
// the zone. It gives the same answer until it is reloaded: it does not forget a source if it cannot remove
// the rules, for example because another program flushed them (COMMAND_FAILED).
var ErrRefused = errors.New("not removed")

// RemoveSource removes an address from a zone; an address that is not in it counts as removed. The error
// wraps [ErrRefused] if it cannot be removed; after any other error a later attempt may succeed.
func (c *Conn) RemoveSource(ctx context.Context, zone string, a netip.Addr) error {
	_, err := c.call(ctx, "removeSource", zone, a)
	if says(err, "UNKNOWN_SOURCE") {
		return nil
	}
	if !answered(err) {
		return err
	}
	has, wrong := c.HasSource(ctx, zone, a)
	switch {
	case wrong == nil && has:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case wrong == nil || answered(wrong): // there is no such zone, or not any more
		return nil
	}
	return errors.Join(err, wrong)
}

// HasSource reports whether an address, alone, is in a zone.
func (c *Conn) HasSource(ctx context.Context, zone string, a netip.Addr) (has bool, err error) {
	answer, err := c.call(ctx, "querySource", zone, a)
	return err == nil && answer.number() == 1, err
}

func (c *Conn) call(ctx context.Context, member, zone string, a netip.Addr) (*decoder, error) {
	source := netip.PrefixFrom(a, a.BitLen()).String()
	answer, err := c.bus.call(ctx, method{busName, object, zones, member}, zone, source)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("firewalld: %s %s in zone %q: %w", member, source, zone, err)
	}
	return answer, nil
}

// answered reports whether err is an exception of firewalld, not of the bus or of the connection.
func answered(err error) bool {
	var e *exception
	return errors.As(err, &e) && !strings.HasPrefix(e.name, driver+".")
}

// says reports whether err is an exception of firewalld with this code, which its text begins with.
func says(err error, code string) bool {
	var e *exception
	if !errors.As(err, &e) {
		return false
	}
	first, _, _ := strings.Cut(e.text, ":")
	return first == code
}
