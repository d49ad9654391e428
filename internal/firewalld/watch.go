package firewalld

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// Watch calls did with "was reloaded", "was started" or "was stopped" whenever firewalld has, until
// ctx is done or the bus closes the connection, which is no error.
func (c *Conn) Watch(ctx context.Context, did func(what string)) error {
	signals := make(chan *dbus.Signal, 16)
	c.bus.Signal(signals)
	defer c.bus.RemoveSignal(signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface(busName), dbus.WithMatchMember("Reloaded")},
		{dbus.WithMatchInterface(driver), dbus.WithMatchMember("NameOwnerChanged"),
			dbus.WithMatchArg(0, busName)},
	} {
		if err := c.bus.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("signals of firewalld: %w", cause(ctx, err))
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-signals:
			if !ok {
				return nil
			}
			if what := meaning(s); what != "" {
				did(what)
			}
		}
	}
}

// meaning returns what a signal says about firewalld, "" if it is about something else.
func meaning(s *dbus.Signal) string {
	switch s.Name {
	case busName + ".Reloaded":
		return "was reloaded"
	case driver + ".NameOwnerChanged":
		if len(s.Body) != 3 || s.Body[0] != busName {
			return ""
		}
		if s.Body[2] == "" {
			return "was stopped"
		}
		return "was started"
	}
	return ""
}
