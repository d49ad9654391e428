package v6_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/v6"
)

// A client refuses the messages of a hostile or faulty server, continues, and pauses between
// attempts.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	grant := func(list ...granted) func(*v6.Message) {
		return func(r *v6.Message) {
			if r.Get(dhcpv6.OptionIANA) != nil {
				set(r, dhcpv6.OptionIANA, (&server{granted: list}).iana(v6.Solicit))
			}
		}
	}
	put := func(code dhcpv6.OptionCode, value []byte) func(*v6.Message) {
		return func(r *v6.Message) { set(r, code, value) }
	}
	one := option(dhcpv6.OptionIAAddr,
		append([]byte("\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x66"),
			uint32s(1000, 2000)...))
	for _, row := range []struct {
		name  string
		alter func(*v6.Message)
	}{
		{"another transaction", func(r *v6.Message) { r.XID++ }},
		{"another client", put(dhcpv6.OptionClientID, []byte("\x00\x03\x00\x01other"))},
		{"no client", put(dhcpv6.OptionClientID, nil)},
		{"no server", put(dhcpv6.OptionServerID, nil)},
		{"an empty server", put(dhcpv6.OptionServerID, []byte{})},
		{"a server that is too long", put(dhcpv6.OptionServerID, make([]byte, 131))},
		{"RECONFIGURE", func(r *v6.Message) { r.Type = v6.Reconfigure }},
		{"a message type of clients", func(r *v6.Message) { r.Type = v6.Renew }},
		{"no IA", put(dhcpv6.OptionIANA, nil)},
		{"another IA", put(dhcpv6.OptionIANA, append(uint32s(2, 0, 0), one...))},
		{"an IA that is cut off", put(dhcpv6.OptionIANA, uint32s(1, 0))},
		{"an address that is cut off",
			put(dhcpv6.OptionIANA, append(uint32s(1, 0, 0), one[:len(one)-1]...))},
		{"an address without times", put(dhcpv6.OptionIANA,
			append(uint32s(1, 0, 0), option(dhcpv6.OptionIAAddr, one[4:20])...))},
		{"T1 after T2", put(dhcpv6.OptionIANA, append(uint32s(1, 200, 100), one...))},
		{"no address", grant()},
		{"an unspecified address", grant(granted{"::", 1000, 2000})},
		{"loopback", grant(granted{"::1", 1000, 2000})},
		{"multicast", grant(granted{"ff02::1", 1000, 2000})},
		{"a link-local address", grant(granted{"fe80::1", 1000, 2000})},
		{"an IPv4 address", grant(granted{"::ffff:10.0.0.1", 1000, 2000})},
		{"a preferred time after the valid one", grant(granted{"2001:db8::66", 2001, 2000})},
		{"no time", grant(granted{"2001:db8::66", 0, 0})},
		{"an address with a bad status",
			put(dhcpv6.OptionIANA,
				append(uint32s(1, 0, 0),
					option(dhcpv6.OptionIAAddr, append(one[4:len(one):len(one)],
						option(dhcpv6.OptionStatusCode, status(1))...))...))},
	} {
		for _, kind := range []v6.Type{v6.Advertise, v6.Reply} {
			t.Run(fmt.Sprint(row.name, " in ", kind), func(t *testing.T) {
				t.Parallel()
				s := newServer()
				s.alter = func(r *v6.Message) {
					if r.Type == kind {
						row.alter(r)
					}
				}
				c := newSim(s, v6.Params{}).start(nil).run(time.Hour)
				if c.m.Held != nil || strings.Contains(c.log.String(), "bind") {
					t.Errorf("has %v\n%s", c.m.Held, &c.log)
				}
				if n := strings.Count(c.log.String(), "\n"); n < 12 || n > 160 {
					t.Errorf("%d messages in an hour:\n%s", n, &c.log)
				}
				s.alter = nil
				if c.run(2 * time.Hour); c.m.Held == nil {
					t.Error("the client does not accept valid messages afterwards")
				}
			})
		}
		t.Run(row.name+" in a renewal", func(t *testing.T) {
			t.Parallel()
			c := bound(t, v6.Params{})
			c.alter = row.alter
			if c.run(1998 * time.Second); c.m.Held == nil ||
				strings.Contains(c.log.String(), "bind") {
				t.Errorf("has %v\n%s", c.m.Held, &c.log)
			}
		})
	}
	t.Run("a hundred addresses, different ones each time", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.granted = nil
		for i := range 100 {
			s.granted = append(s.granted, granted{fmt.Sprintf("2001:db8::%x", i+1), 1000, 2000})
		}
		c := newSim(s, v6.Params{}).start(nil).run(400 * time.Second)
		for i := range s.granted { // different ones each time
			s.granted[i].addr = fmt.Sprintf("2001:db8:1::%x", i+1)
		}
		if c.run(400 * time.Second); c.m.Held == nil || len(c.m.Held.Addresses) != 16 {
			t.Errorf("has %v", c.m.Held)
		}
	})
	t.Run("maximum times outside of the allowed range", func(t *testing.T) {
		t.Parallel()
		for _, n := range []uint32{0, 59, 86401, ever} {
			s := newServer()
			s.alter = func(r *v6.Message) {
				set(r, dhcpv6.OptionIANA, nil)
				set(r,
					dhcpv6.OptionSolMaxRT, uint32s(n))
			}
			c := newSim(s, v6.Params{}).start(nil).run(4 * time.Hour)
			if got := strings.Count(c.log.String(), "\n"); got != 15 {
				t.Errorf("SOL_MAX_RT %d: %d messages", n, got)
			}
		}
	})
}

// A flood of messages does not make the client send or wake more often.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"soliciting", "requesting", "bound", "renewing", "rebinding",
		"stopped"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			c := newSim(newServer(), v6.Params{})
			switch state {
			case "soliciting":
				c.mute = true
				c.start(nil).run(time.Millisecond)
			case "requesting":
				c.alter = func(*v6.Message) { c.mute = true }
				c.start(nil).run(1500 * time.Millisecond)
			default:
				c.start(nil).run(2 * time.Second)
				c.mute = true
				c.run(map[string]time.Duration{"renewing": 550,
					"rebinding": 900}[state] * time.Second)
				if state == "stopped" {
					c.m.Stop()
					c.wake = time.Time{}
				}
			}
			c.log.Reset()
			wake, evil := c.wake, newServer()
			evil.name, evil.granted = "evil", []granted{{"ff02::1", 1000, 2000}}
			var storm []*v6.Message
			for _, kind := range []v6.Type{v6.Solicit, v6.Request, v6.Renew} {
				q := *c.last
				q.Type = kind
				set(&q, dhcpv6.OptionServerID, nil)
				storm = append(storm, evil.answer(&q)...)
			}
			for range 10000 {
				for _, r := range storm {
					c.do(c.m.Received(c.now, r))
				}
			}
			if c.log.Len() > 0 || !c.wake.Equal(wake) {
				t.Errorf("wakes %v, not %v, and does\n%s", c.wake, wake, &c.log)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"nothing": nil, "three bytes": {1, 2, 3}, "of a relay": {12, 0, 0, 0},
		"no type":        {0, 0, 0, 0},
		"half an option": {7, 0, 0, 1, 0, 1, 0}, "an option is cut off": {7, 0, 0, 1, 0, 1, 0, 2,
			9}, "too long": append([]byte{7, 0, 0, 1, 0, 99, 0x10, 0}, make([]byte, 4096)...),
	} {
		if m, err := v6.Decode(b); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
	in := append([]byte{7, 1, 2, 3}, append(option(dhcpv6.OptionDNSRecursiveNameServer,
		[]byte("a")), option(dhcpv6.OptionPreference, nil)...)...)
	b := bytes.Clone(in)
	m, err := v6.Decode(b)
	clear(b)
	if err != nil || m.XID != 0x010203 ||
		string(m.Get(dhcpv6.OptionDNSRecursiveNameServer)) != "a" ||
		m.Get(dhcpv6.OptionPreference) == nil || m.Get(99) != nil ||
		!bytes.Equal(m.Encode(), in) {
		t.Errorf("%v, got %+v", err, m)
	}
}

func FuzzDecode(f *testing.F) {
	s := newServer()
	f.Add(s.answer(&v6.Message{Type: v6.Solicit,
		Options: dhcpv6.Options{&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionClientID,
			OptionData: client}}})[0].Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := v6.Decode(b); err == nil && !bytes.Equal(m.Encode(), b) {
			t.Errorf("got\n%x\nwant\n%x", m.Encode(), b)
		}
	})
}
