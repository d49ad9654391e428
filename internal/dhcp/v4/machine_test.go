package v4_test

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

// bound returns a client that has had 10.0.0.7/24 for an hour from dawn.
func bound(t *testing.T, p v4.Params) *sim {
	t.Helper()
	s := newSim(newServer(), p).start(nil)
	s.expect(t, `
		0s DHCPDISCOVER
		0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		0s bind 10.0.0.7/24
	`)
	return s
}

// earlier is the lease of a previous run: 10.0.0.7/24, until half an hour after dawn.
func earlier() *v4.Lease {
	return &v4.Lease{Address: netip.MustParsePrefix("10.0.0.7/24"),
		Server: netip.MustParseAddr("10.0.0.1"),
		Renew:  dawn, Rebind: dawn.Add(20 * time.Minute), Expires: dawn.Add(30 * time.Minute)}
}

// a renewal is unicast from the leased address, which appears only in ciaddr.
func TestRenewsForHours(t *testing.T) {
	t.Parallel()
	s := bound(t, v4.Params{Broadcast: true})
	if !s.last.Broadcast {
		t.Error("a REQUEST without an address does not ask for a broadcast answer")
	}
	s.run(65*time.Minute).expect(t, `
		30m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		30m0s bind 10.0.0.7/24
		1h0m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		1h0m0s bind 10.0.0.7/24
	`)
	if s.last.Broadcast {
		t.Error("a renewal asks for a broadcast answer")
	}
	s.run(1000 * time.Hour)
	if n := strings.Count(s.log.String(), "bind"); n != 2000 {
		t.Errorf("%d renewals in 1000 hours", n)
	}
}

// Clients that got their leases at the same moment do not send at the same time: neither at T1 nor
// T2, which move forward by up to a tenth and never back (RFC 2131 section 4.4.5), nor when a
// daemon starts them, unless a renewal is due.
func TestJitter(t *testing.T) {
	t.Parallel()
	seconds, starts := map[int]bool{}, map[time.Duration]bool{}
	for n := range uint64(100) {
		// Arbitrary, and different for each client.
		random := func() uint64 { return n * 0x9e3779b97f4a7c15 }
		l := newSim(newServer(), v4.Params{Rand: random}).start(nil).m.Held
		renew, rebind := l.Renew.Sub(dawn), l.Rebind.Sub(dawn)
		if renew > 30*time.Minute || renew <= 27*time.Minute || rebind > 51*time.Minute ||
			rebind <= 51*time.Minute*9/10 || rebind <= renew ||
			!l.Expires.Equal(dawn.Add(time.Hour)) {
			t.Errorf("T1 %v, T2 %v, expires %v", renew, rebind, l.Expires.Sub(dawn))
		}
		seconds[int(renew.Seconds())] = true
		s := newSim(newServer(), v4.Params{Rand: random})
		before := earlier()
		if _, wake := s.m.Start(dawn, before); !wake.Equal(dawn) {
			t.Errorf("asks %v after T1", wake.Sub(dawn))
		}
		before.Renew = dawn.Add(time.Minute)
		s.m.Stop()
		_, wake := s.m.Start(dawn, before)
		if wake.Sub(dawn) >= time.Second || wake.Before(dawn) {
			t.Errorf("asks after %v", wake.Sub(dawn))
		}
		starts[wake.Sub(dawn).Truncate(10*time.Millisecond)] = true
	}
	if len(seconds) < 50 || len(starts) < 50 {
		t.Errorf("100 clients ask in %d different seconds, and start in %d different hundredths",
			len(seconds), len(starts))
	}
}

func TestRebindsByBroadcast(t *testing.T) {
	t.Parallel()
	s := bound(t, v4.Params{})
	s.mute = true
	s.run(51*time.Minute).expect(t, `
		30m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		40m30s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		45m45s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		48m22.5s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		49m41.25s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		51m0s DHCPREQUEST from 10.0.0.7 ciaddr 10.0.0.7
	`)
	if want := "no answer to the REQUEST in 5 tries"; s.m.Refused != want ||
		s.m.State() != "rebinding" {
		t.Errorf("%s: got %q, want %q", s.m.State(), s.m.Refused, want)
	}
	s.mute, s.id = false, "10.0.0.2" // another server knows the lease
	s.run(4*time.Minute+30*time.Second).expect(t, `
		55m30s DHCPREQUEST from 10.0.0.7 ciaddr 10.0.0.7
		55m30s bind 10.0.0.7/24
	`)
	if l := s.m.Held; l.Server.String() != "10.0.0.2" || !l.Expires.Equal(s.now.Add(time.Hour)) ||
		s.m.Refused != "" {
		t.Errorf("lease %+v, reason %q", l, s.m.Refused)
	}
}

func TestExpiryLosesAndGoesOn(t *testing.T) {
	t.Parallel()
	s := bound(t, v4.Params{Total: time.Minute})
	s.run(50 * time.Minute)
	s.mute = true
	s.log.Reset()
	for s.m.Held != nil {
		s.run(time.Second)
	}
	if got := s.log.String(); !strings.HasSuffix(got,
		"\n1h30m0s lose 10.0.0.7/24: the lease has expired: no answer to the REQUEST in 4 tries\n1h30m0s DHCPDISCOVER\n") {
		t.Errorf("got\n%s", got)
	}
	if s.run(100 * time.Hour); strings.Contains(s.log.String(), "fail") {
		t.Error("a client that has had a lease gives up")
	}
	s.mute = false
	if s.run(2 * time.Minute); !strings.HasSuffix(s.log.String(), "bind 10.0.0.7/24\n") {
		t.Errorf("got\n%s", s.log.String())
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("in REQUESTING", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v4.Params{})
		s.nak = true
		s.start(nil).run(2*time.Second).expect(t, `
			0s DHCPDISCOVER
			0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			2s DHCPDISCOVER
			2s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		`)
		if want := "the server refused: not here?"; s.m.Refused != want {
			t.Errorf("got %q, want %q", s.m.Refused, want)
		}
	})
	t.Run("in INIT-REBOOT", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v4.Params{})
		s.nak = true
		s.alter = func(r *v4.Message) { s.nak, s.your = false, "10.0.0.8" }
		s.start(earlier()).expect(t, `
			0s DHCPREQUEST 50:10.0.0.7
			0s lose 10.0.0.7/24: the server refused: not here?
			0s DHCPDISCOVER
			0s DHCPREQUEST 50:10.0.0.8 54:10.0.0.1
			0s bind 10.0.0.8/24
		`)
	})
	for name, after := range map[string]time.Duration{"in RENEWING": 30 * time.Minute,
		"in REBINDING": 51 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bound(t, v4.Params{})
			s.mute = true
			s.run(after - 1)
			s.log.Reset()
			s.mute, s.nak = false, true
			s.alter = func(*v4.Message) { s.mute = true }
			s.run(1)
			if _, got, _ := strings.Cut(s.log.String(),
				"\n"); got != after.String()+" lose 10.0.0.7/24: the server refused: not here?\n"+after.String()+" DHCPDISCOVER\n" {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	t.Run("the lease is good", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v4.Params{Probe: true}).start(earlier()).run(time.Minute)
		s.expect(t, `
			0s DHCPREQUEST 50:10.0.0.7
			0s bind 10.0.0.7/24
		`)
		if l := s.m.Held; !l.Expires.Equal(dawn.Add(time.Hour)) {
			t.Errorf("expires %v", l.Expires)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		s := newSim(nil, v4.Params{})
		s.server = &server{mute: true}
		s.start(earlier()).run(time.Minute).expect(t, `
			0s DHCPREQUEST 50:10.0.0.7
			10s DHCPREQUEST 50:10.0.0.7
			30s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		`)
		if s.m.Held == nil {
			t.Error("the lease is lost")
		}
	})
	t.Run("it expires without an answer", func(t *testing.T) {
		t.Parallel()
		l := earlier()
		l.Expires = dawn.Add(5 * time.Second)
		s := newSim(&server{mute: true}, v4.Params{}).start(l).run(6 * time.Second)
		s.expect(t, `
			0s DHCPREQUEST 50:10.0.0.7
			5s lose 10.0.0.7/24: the lease has expired: no answer to the REQUEST in one try
			5s DHCPDISCOVER
		`)
	})
	t.Run("it has already expired", func(t *testing.T) {
		t.Parallel()
		l := earlier()
		l.Expires = dawn
		newSim(&server{mute: true}, v4.Params{Total: time.Second}).start(l).run(time.Minute).expect(t, `
			0s DHCPDISCOVER
			1s fail: no OFFER in one try
		`)
	})
	t.Run("it never expires", func(t *testing.T) {
		t.Parallel()
		l := earlier()
		l.Renew, l.Rebind, l.Expires = time.Time{}, time.Time{}, time.Time{}
		s := newSim(&server{mute: true}, v4.Params{}).start(l).run(time.Hour)
		s.expect(t, `
			0s DHCPREQUEST 50:10.0.0.7
			10s DHCPREQUEST 50:10.0.0.7
		`)
		if s.m.State() != "bound" || !s.wake.IsZero() {
			t.Errorf("%s, wakes %v", s.m.State(), s.wake)
		}
	})
}

func TestProbe(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v4.Params{Probe: true, ClientID: []byte("id")})
	s.hardware = true
	s.start(nil).expect(t, `
		0s DHCPDISCOVER
		0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		0s probe 10.0.0.7
		0s DHCPDECLINE 50:10.0.0.7 54:10.0.0.1
	`)
	if !bytes.Equal(s.last.Get(v4.OptClientID), []byte("id")) {
		t.Error("DECLINE without the identifier")
	}
	if want := "10.0.0.7 is in use by 02:00:00:00:00:09"; s.m.Refused != want {
		t.Errorf("got %q, want %q", s.m.Refused, want)
	}
	s.hardware, s.your = false, "10.0.0.8"
	s.run(15*time.Second).expect(t, `
		10s DHCPDISCOVER
		10s DHCPREQUEST 50:10.0.0.8 54:10.0.0.1
		10s probe 10.0.0.8
	`)
	// Too late, and for another address.
	s.do(s.m.Probed(s.now, netip.MustParseAddr("10.0.0.7"), other))
	s.do(s.m.Probed(s.now, netip.MustParseAddr("10.0.0.8"), nil))
	s.expect(t, "15s bind 10.0.0.8/24\n")
	if l := s.m.Held; !l.Expires.Equal(dawn.Add(time.Hour + 10*time.Second)) {
		t.Errorf("the lease begins with the probe, not with the REQUEST: %v", l.Expires)
	}
	s.do(s.m.Probed(s.now, netip.MustParseAddr("10.0.0.8"), other)) // no longer expected
	s.expect(t, "")
}

func TestProbeWithoutAnswerIsFree(t *testing.T) {
	t.Parallel()
	newSim(newServer(), v4.Params{Probe: true}).start(nil).run(10*time.Second).expect(t, `
		0s DHCPDISCOVER
		0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		0s probe 10.0.0.7
		10s bind 10.0.0.7/24
	`)
}

func TestProbeTakesLongerThanTheLease(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v4.Params{Probe: true, Total: 11 * time.Second})
	s.time = 5
	s.start(nil).run(time.Minute).expect(t, `
		0s DHCPDISCOVER
		0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		0s probe 10.0.0.7
		10s fail: the server gave 10.0.0.7/24 for a shorter time than the probe takes
	`)
}

// a Bind after a renewal contains the changed lease and the previous one.
func TestRenewalChanges(t *testing.T) {
	t.Parallel()
	s := bound(t, v4.Params{})
	s.options = []v4.Option{{Code: v4.OptRouter, Value: ip("10.0.0.1")}}
	s.run(30*time.Minute).expect(t, `
		30m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		30m0s bind 10.0.0.7/24 instead of 10.0.0.7/24
	`)
	s.your = "10.0.0.8"
	s.run(30*time.Minute).expect(t, `
		1h0m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		1h0m0s bind 10.0.0.8/24 instead of 10.0.0.7/24
	`)
	s.run(30*time.Minute).expect(t, `
		1h30m0s DHCPREQUEST from 10.0.0.8 to 10.0.0.1 ciaddr 10.0.0.8
		1h30m0s bind 10.0.0.8/24
	`)
}

func TestRenewalChangesToAnAddressInUse(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v4.Params{Probe: true}).start(earlier())
	s.log.Reset()
	s.your, s.hardware = "10.0.0.8", true
	s.run(30*time.Minute).expect(t, `
		30m0s DHCPREQUEST from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7
		30m0s probe 10.0.0.8
		30m0s lose 10.0.0.7/24: 10.0.0.8 is in use by 02:00:00:00:00:09
		30m0s DHCPDECLINE 50:10.0.0.8 54:10.0.0.1
	`)
}

// Times documented in docs/plugins/dhcp.md: a message is repeated after T, 2T and 4T; pauses start
// at 2 s and double up to -resendmax.
func TestRetransmission(t *testing.T) {
	t.Parallel()
	s := newSim(&server{mute: true}, v4.Params{Timeout: 2 * time.Second, Pause: 8 * time.Second})
	s.start(nil).run(142 * time.Second)
	var at []string
	for line := range strings.Lines(s.log.String()) {
		when, what, _ := strings.Cut(line, " ")
		if what != "DHCPDISCOVER\n" {
			t.Errorf("got %s", line)
		}
		at = append(at, when)
	}
	want := "0s 2s 6s 16s 18s 22s 32s 34s 38s 48s 50s 54s 1m4s 1m6s 1m10s 1m22s 1m24s 1m28s 1m44s 1m46s 1m50s 2m6s 2m8s 2m12s"
	if got := strings.Join(at, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNoMoreTries(t *testing.T) {
	t.Parallel()
	limits := v4.Params{Timeout: 2 * time.Second, Pause: 8 * time.Second, Total: 10 * time.Second}
	for _, row := range []struct {
		name   string
		server *server
		want   string
	}{
		{"no answer", &server{mute: true}, `
			0s DHCPDISCOVER
			2s DHCPDISCOVER
			6s DHCPDISCOVER
			10s fail: no OFFER in 3 tries
		`},
		{"the REQUEST has no answer", &server{id: "10.0.0.1", your: "10.0.0.7",
			mask: "255.255.255.0", alter: func(r *v4.Message) {
				if r.Type() == v4.ACK {
					r.XID++
				}
			}}, `
			0s DHCPDISCOVER
			0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			2s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			6s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			10s fail: no answer to the REQUEST in 3 tries
		`},
		{"every offer is unusable", &server{id: "10.0.0.1", your: "10.0.0.255", mask: "255.255.255.0"}, `
			0s DHCPDISCOVER
			2s DHCPDISCOVER
			6s DHCPDISCOVER
			10s fail: no OFFER in 3 tries: the server gave 10.0.0.255/24, which is the address of the network or its broadcast address
		`},
		{"every REQUEST is refused", &server{id: "10.0.0.1", your: "10.0.0.7", mask: "255.255.255.0", nak: true}, `
			0s DHCPDISCOVER
			0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			2s DHCPDISCOVER
			2s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			4s DHCPDISCOVER
			4s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			6s DHCPDISCOVER
			6s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			8s DHCPDISCOVER
			8s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
			8s fail: the server refused: not here?
		`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(row.server, limits).start(nil).run(time.Hour)
			s.expect(t, row.want)
			if s.m.State() != "stopped" || !s.wake.IsZero() {
				t.Errorf("%s, wakes at %v", s.m.State(), s.wake)
			}
		})
	}
}

// a client that is released or stopped does not wait.
func TestReleaseDuringPause(t *testing.T) {
	t.Parallel()
	s := newSim(&server{mute: true}, v4.Params{}).start(nil).run(71 * time.Second)
	if want := "waiting for the next attempt"; s.m.State() != want {
		t.Fatalf("%s, want %s", s.m.State(), want)
	}
	if list := s.m.Release(); len(list) > 0 || s.m.State() != "stopped" {
		t.Errorf("%v, %s", list, s.m.State())
	}
	if list, wake := s.m.Tick(s.now.Add(time.Hour)); len(list) > 0 || !wake.IsZero() {
		t.Errorf("%v, wakes %v", list, wake)
	}
}

// the identifier has at most 255 bytes, and is the same in the release.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		id      []byte
		options []v4.Option
		want    []byte
	}{
		{"own identifier", v4.ClientID("c/net/eth0"), nil, []byte("\x00c/net/eth0")},
		{"provided identifier", v4.ClientID("c/net/eth0"),
			[]v4.Option{{Code: v4.OptClientID, Value: []byte("mine")}}, []byte("mine")},
		{"an identifier that is too long", bytes.Repeat([]byte("x"), 256), nil,
			bytes.Repeat([]byte("x"), 255)},
		{"no identifier", nil, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := bound(t, v4.Params{ClientID: row.id, Options: row.options,
				Parameters: []byte{1, 3}})
			if got := s.last.Get(v4.OptClientID); !bytes.Equal(got, row.want) {
				t.Errorf("REQUEST: %q", got)
			}
			xid := s.last.XID
			s.do(s.m.Release(), time.Time{})
			s.expect(t, "0s DHCPRELEASE from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7 54:10.0.0.1\n")
			if got := s.last.Get(v4.OptClientID); !bytes.Equal(got, row.want) {
				t.Errorf("RELEASE: %q", got)
			}
			if s.last.XID == xid || s.last.Get(v4.OptParameters) != nil ||
				s.last.Get(v4.OptMaxMessageSize) != nil || s.last.Broadcast {
				t.Errorf("RELEASE contains options that RFC 2131 table 5 does not allow: %+v",
					s.last)
			}
			if s.m.Held != nil || s.m.State() != "stopped" {
				t.Errorf("%s with %v", s.m.State(), s.m.Held)
			}
		})
	}
	t.Run("an address that is being probed is released", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v4.Params{Probe: true}).start(nil)
		s.log.Reset()
		s.do(s.m.Release(), time.Time{})
		s.expect(t, "0s DHCPRELEASE from 10.0.0.7 to 10.0.0.1 ciaddr 10.0.0.7 54:10.0.0.1\n")
	})
}

func TestClientID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 300)
	a, b := v4.ClientID(long+"/eth0"), v4.ClientID(long+"/eth1")
	if len(a) != 255 || len(b) != 255 || bytes.Equal(a, b) {
		t.Errorf("R-60: %d and %d bytes\n%q\n%q", len(a), len(b), a, b)
	}
	if got := v4.ClientID(long[:254]); string(got) != "\x00"+long[:254] {
		t.Errorf("got %q", got)
	}
}

// Options of the configuration appear in requests, except those that the protocol sets.
func TestProvided(t *testing.T) {
	t.Parallel()
	s := newSim(&server{mute: true}, v4.Params{Parameters: []byte{1, 3, 121}, Options: []v4.Option{
		{Code: byte(dhcpv4.OptionHostName), Value: []byte("web")},
		{Code: v4.OptType, Value: []byte{byte(v4.Release)}},
		{Code: 0, Value: []byte("x")}, {Code: 255, Value: []byte("x")},
		{Code: v4.OptServerID, Value: ip("10.9.9.9")},
		{Code: v4.OptRequestedIP, Value: ip("10.9.9.9")},
	}}).start(nil)
	s.expect(t, "0s DHCPDISCOVER\n")
	got := slices.Sorted(maps.Keys(s.last.Options))
	if want := []byte{byte(dhcpv4.OptionHostName), v4.OptType, v4.OptParameters,
		v4.OptMaxMessageSize}; !bytes.Equal(got, want) {
		t.Errorf("options %v, want %v", got, want)
	}
}

// RFC 2131 section 4.4.1: a REQUEST has the seconds and the transaction of the DISCOVER of the
// accepted offer.
func TestSeconds(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v4.Params{})
	s.mute = true
	s.start(nil).run(29 * time.Second)
	discover := s.last
	offer := s.reply(discover, v4.Offer)
	s.do(s.m.Received(s.now, offer))
	if s.last.Type() != v4.Request || s.last.Secs != 10 || s.last.XID != discover.XID {
		t.Errorf("%v, %d s, transaction %d of %d", s.last.Type(), s.last.Secs, s.last.XID,
			discover.XID)
	}
}

func TestFirstOfManyServers(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v4.Params{})
	s.mute = true
	s.start(nil)
	second := newServer()
	second.id, second.your = "10.0.0.2", "10.0.0.99"
	q := s.last
	s.do(s.m.Received(s.now, s.reply(q, v4.Offer)))
	s.do(s.m.Received(s.now, second.reply(q, v4.Offer)))
	s.do(s.m.Received(s.now, second.reply(q, v4.NAK)))
	s.do(s.m.Received(s.now, second.reply(q, v4.ACK)))
	s.do(s.m.Received(s.now, s.reply(q, v4.ACK)))
	s.expect(t, `
		0s DHCPDISCOVER
		0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1
		0s bind 10.0.0.7/24
	`)
	s.run(30 * time.Minute)
	s.do(s.m.Received(s.now, second.reply(s.last, v4.NAK))) // this server was not asked
	if s.m.Held == nil {
		t.Error("a server that the client has not asked ends the lease")
	}
}
