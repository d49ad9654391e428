// Package firewalld adds addresses to zones of firewalld at run time, over the system bus. It knows
// neither other firewalls nor containers.
package firewalld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Names on the bus (D-Bus specification, firewalld.dbus(5)).
const (
	driver = "org.freedesktop.DBus"

	busName = "org.fedoraproject.FirewallD1"
	object  = "/org/fedoraproject/FirewallD1"
	zones   = "org.fedoraproject.FirewallD1.zone"
)

// Conn is a connection with the system bus.
type Conn struct{ bus *dbus.Conn }

// Open connects to the bus at DBUS_SYSTEM_BUS_ADDRESS, or at its default address. It returns an
// error if there is no bus, but not if firewalld is not on the bus. The connection ends with ctx or
// with [Conn.Close].
func Open(ctx context.Context) (*Conn, error) {
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", cause(ctx, err))
	}
	return &Conn{bus}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.bus.Close() }

// Running reports whether firewalld is on the bus. It does not start firewalld.
func (c *Conn) Running(ctx context.Context) (bool, error) {
	_, err := call(ctx, c.bus.BusObject(), driver+".GetNameOwner", busName)
	if e := new(exception); errors.As(err, e) && e.Name == driver+".Error.NameHasNoOwner" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("system bus: %w", err)
	}
	return true, nil
}

// Ping returns an error if firewalld does not answer, for example because it is frozen, or because it
// is reloading its rules. It needs no permission and does not start firewalld.
func (c *Conn) Ping(ctx context.Context) error {
	reply := c.bus.Object(busName, object).
		CallWithContext(ctx, driver+".Peer.Ping", dbus.FlagNoAutoStart)
	if reply.Err != nil {
		return fmt.Errorf("firewalld does not answer: %w", cause(ctx, reply.Err))
	}
	return nil
}

// ErrDenied means that the bus or firewalld denies the call to this process (polkit), for example in
// the user namespace of rootless containers.
var ErrDenied = errors.New("not authorized")

// Zone is an active zone: one with interfaces or sources.
type Zone struct {
	Interfaces []string `json:"interfaces,omitzero"`
	Sources    []string `json:"sources,omitzero"`
}

// Zones returns the active zones by name, and the name of the default zone.
func (c *Conn) Zones(ctx context.Context) (active map[string]Zone, standard string, err error) {
	o := c.bus.Object(busName, object)
	answer, err := call(ctx, o, zones+".getActiveZones")
	if err != nil {
		return nil, "", fmt.Errorf("firewalld: active zones: %w", err)
	}
	var found map[string]map[string][]string
	if err := dbus.Store(answer, &found); err != nil {
		return nil, "", fmt.Errorf("firewalld: active zones: %w", err)
	}
	active = map[string]Zone{}
	for name, z := range found {
		active[name] = Zone{z["interfaces"], z["sources"]}
	}
	answer, err = call(ctx, o, busName+".getDefaultZone")
	if err == nil {
		err = dbus.Store(answer, &standard)
	}
	if err != nil {
		return nil, "", fmt.Errorf("firewalld: default zone: %w", err)
	}
	return active, standard, nil
}

// AddSource adds a single address to a zone. added is false if the zone already had the address.
func (c *Conn) AddSource(ctx context.Context, zone string, a netip.Addr) (added bool, err error) {
	_, err = c.call(ctx, "addSource", zone, a)
	if hasCode(err, "ZONE_ALREADY_SET") {
		return false, nil
	}
	return err == nil, err
}

// ErrRefused means that firewalld refused to remove a source, and that the source is still in the
// zone. It refuses until it is reloaded, because it does not forget a source if it cannot remove
// the rules, for example after another program flushed them (COMMAND_FAILED).
var ErrRefused = errors.New("not removed")

// RemoveSource removes an address from a zone. It succeeds if the zone does not contain the
// address. The error wraps [ErrRefused] if firewalld refuses; after any other error a later attempt
// may succeed.
func (c *Conn) RemoveSource(ctx context.Context, zone string, a netip.Addr) error {
	_, err := c.call(ctx, "removeSource", zone, a)
	if hasCode(err, "UNKNOWN_SOURCE") {
		return nil
	}
	if !answered(err) || errors.Is(err, ErrDenied) {
		return err
	}
	has, wrong := c.HasSource(ctx, zone, a)
	switch {
	case wrong == nil && has:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case wrong == nil || answered(wrong): // the zone does not exist
		return nil
	}
	return errors.Join(err, wrong)
}

// HasSource reports whether a zone contains exactly this address as a source.
func (c *Conn) HasSource(ctx context.Context, zone string, a netip.Addr) (bool, error) {
	answer, err := c.call(ctx, "querySource", zone, a)
	if err != nil || len(answer) == 0 {
		return false, err
	}
	has, _ := answer[0].(bool)
	return has, nil
}

func (c *Conn) call(ctx context.Context, member, zone string, a netip.Addr) ([]any, error) {
	source := netip.PrefixFrom(a, a.BitLen()).String()
	answer, err := call(ctx, c.bus.Object(busName, object), zones+"."+member, zone, source)
	if err != nil {
		return nil, fmt.Errorf("firewalld: %s %s in zone %q: %w", member, source, zone, err)
	}
	return answer, nil
}

// call calls a method of an object on the bus. The error wraps an exception if the object returned
// one.
func call(ctx context.Context, o dbus.BusObject, method string, arguments ...any) ([]any, error) {
	reply := o.CallWithContext(ctx, method, 0, arguments...)
	if e := new(dbus.Error); errors.As(reply.Err, e) {
		return nil, exception(*e)
	}
	return reply.Body, cause(ctx, reply.Err)
}

// cause returns the cause of ctx if ctx ended before a call failed, because the connection then
// reports only that it was closed.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// exception is an error that an object on the bus returned.
type exception dbus.Error

// Error returns the first line of the text, because firewalld appends every command that it sent to
// nft.
func (e exception) Error() string {
	first, _, _ := strings.Cut(e.text(), "\n")
	return cmp.Or(first, e.Name)
}

// Is reports whether target is [ErrDenied] and the exception denies the call. The name of firewalld's
// exception ends in the action of polkit.
func (e exception) Is(target error) bool {
	return target == ErrDenied &&
		(e.Name == driver+".Error.AccessDenied" || strings.Contains(e.Name, ".NotAuthorizedException"))
}

func (e exception) text() string {
	if len(e.Body) == 0 {
		return ""
	}
	text, _ := e.Body[0].(string)
	return text
}

// answered reports whether err is an exception of firewalld, not of the bus or of the connection.
func answered(err error) bool {
	var e exception
	return errors.As(err, &e) && !strings.HasPrefix(e.Name, driver+".")
}

// hasCode reports whether err is an exception of firewalld with this code, the prefix of its text.
func hasCode(err error, code string) bool {
	var e exception
	if !errors.As(err, &e) {
		return false
	}
	first, _, _ := strings.Cut(e.text(), ":")
	return first == code
}
