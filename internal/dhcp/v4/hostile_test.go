package v4_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

// A client refuses the OFFER and ACK of a hostile or faulty server, continues, and pauses between
// attempts.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	set := func(code byte, value ...byte) func(*v4.Message) {
		return func(r *v4.Message) { r.Set(code, value) }
	}
	your := func(a string) func(*v4.Message) {
		return func(r *v4.Message) { r.Your = netip.MustParseAddr(a) }
	}
	for _, row := range []struct {
		name  string
		alter func(*v4.Message)
	}{
		{"another transaction", func(r *v4.Message) { r.XID++ }},
		{"another client", func(r *v4.Message) { r.MAC = other }},
		{"a request instead of a reply", func(r *v4.Message) { r.Reply = false }},
		{"no address", func(r *v4.Message) { r.Your = netip.Addr{} }},
		{"0.0.0.0/8", your("0.1.2.3")},
		{"loopback", your("127.0.0.1")},
		{"multicast", your("224.0.0.1")},
		{"reserved", your("240.0.0.1")},
		{"broadcast", your("255.255.255.255")},
		{"the address of the network", your("10.0.0.0")},
		{"the broadcast address of the network", your("10.0.0.255")},
		{"all routers outside of the network", set(v4.OptRouter, ip("192.168.1.1", "10.0.1.1")...)},
		{"the only router is the client", set(v4.OptRouter, ip("10.0.0.7")...)},
		{"a mask of no bits", set(v4.OptSubnetMask, ip("0.0.0.0")...)},
		{"a mask with a hole", set(v4.OptSubnetMask, ip("255.0.255.0")...)},
		{"a mask of three bytes", set(v4.OptSubnetMask, 255, 255, 255)},
	} {
		for _, kind := range []v4.Type{v4.Offer, v4.ACK} {
			t.Run(fmt.Sprint(row.name, " in ", kind), func(t *testing.T) {
				t.Parallel()
				s := newServer()
				s.alter = func(r *v4.Message) {
					if r.Type() == kind {
						row.alter(r)
					}
				}
				c := newSim(s, v4.Params{}).start(nil).run(10 * time.Minute)
				if c.m.Held != nil || strings.Contains(c.log.String(), "bind") {
					t.Errorf("has %v", c.m.Held)
				}
				if n := strings.Count(c.log.String(), "\n"); n < 10 || n > 60 {
					t.Errorf("%d messages in ten minutes:\n%s", n, &c.log)
				}
				s.alter = nil
				if c.run(3 * time.Minute); c.m.Held == nil {
					t.Error("the client does not accept valid messages afterwards")
				}
			})
			t.Run(fmt.Sprint(row.name, " in ", kind, " of a renewal"), func(t *testing.T) {
				t.Parallel()
				c := bound(t, v4.Params{})
				c.alter = row.alter
				if c.run(59 * time.Minute); c.m.Held == nil ||
					c.m.Held.Address.String() != "10.0.0.7/24" ||
					strings.Contains(c.log.String(), "bind") {
					t.Errorf("has %v\n%s", c.m.Held, &c.log)
				}
				c.alter = nil
				if c.run(time.Minute - 1); !strings.Contains(c.log.String(), "bind") &&
					c.m.Held == nil {
					t.Errorf("the lease is not renewed when the server works again\n%s", &c.log)
				}
			})
		}
	}
	for name, alter := range map[string]func(*v4.Message){
		"no server":              func(r *v4.Message) { r.Set(v4.OptServerID, nil) },
		"server 0.0.0.0":         set(v4.OptServerID, 0, 0, 0, 0),
		"server 255.255.255.255": set(v4.OptServerID, 255, 255, 255, 255),
	} {
		t.Run(name+" in the OFFER", func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.alter = alter
			c := newSim(s, v4.Params{Total: 10 * time.Second,
				Timeout: 2 * time.Second}).start(nil).run(time.Minute)
			if want := "no OFFER in 3 tries: an offer does not name its server"; c.m.Held != nil ||
				c.m.Refused != want {
				t.Errorf("has %v, got %q, want %q", c.m.Held, c.m.Refused, want)
			}
		})
	}
	t.Run("an ACK without a server counts as from the OFFER's", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.alter = func(r *v4.Message) {
			if r.Type() == v4.ACK {
				delete(r.Options, v4.OptServerID)
			}
		}
		c := newSim(s, v4.Params{}).start(nil)
		if l := c.m.Held; l == nil || l.Server.String() != s.id {
			t.Errorf("got %+v", l)
		}
	})
	t.Run("another address than was offered", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.alter = func(r *v4.Message) {
			if r.Type() == v4.ACK {
				r.Your = netip.MustParseAddr("10.0.0.66")
			}
		}
		c := newSim(s, v4.Params{Total: time.Second}).start(nil)
		if want := "the server offered 10.0.0.7 and gave 10.0.0.66"; c.m.Held != nil ||
			c.m.Refused != want {
			t.Errorf("has %v, got %q, want %q", c.m.Held, c.m.Refused, want)
		}
	})
	t.Run("a router outside of a network of one address, as in clouds", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.mask, s.options = "255.255.255.255",
			[]v4.Option{{Code: v4.OptRouter, Value: ip("169.254.1.1")}}
		if l := got(t, s); l.Address.String() != "10.0.0.7/32" || len(l.Routers) != 1 {
			t.Errorf("got %+v", l)
		}
	})
}

// A flood of messages does not make the client send or wake more often.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"paused", "requesting", "bound", "renewing", "rebinding",
		"stopped"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			c := newSim(newServer(), v4.Params{})
			switch state {
			case "paused":
				c.nak = true
				c.start(nil)
			case "requesting":
				c.alter = func(*v4.Message) { c.mute = true }
				c.start(nil)
			case "stopped":
				c.start(nil)
				c.m.Release()
				c.wake = time.Time{}
			case "bound":
				c.start(nil)
			case "renewing", "rebinding":
				c.start(nil)
				c.mute = true
				c.run(map[string]time.Duration{"renewing": 31,
					"rebinding": 52}[state] * time.Minute)
			}
			c.log.Reset()
			wake, q, evil := c.wake, c.last, newServer()
			evil.id, evil.your = "10.6.6.6", "10.0.0.255"
			offer, ack, wrong := evil.reply(q, v4.Offer), evil.reply(q, v4.ACK),
				evil.reply(q, v4.NAK)
			wrong.XID++
			for range 10000 {
				for _, r := range []*v4.Message{offer, ack, wrong} {
					c.do(c.m.Received(c.now, r))
				}
			}
			if c.log.Len() > 0 || !c.wake.Equal(wake) {
				t.Errorf("wakes %v, not %v, and does\n%s", c.wake, wake, &c.log)
			}
		})
	}
}
