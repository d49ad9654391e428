package v6_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/v6"
)

// expect compares the log with want, and clears it.
func (s *sim) expect(t *testing.T, want string) {
	t.Helper()
	want = strings.TrimPrefix(strings.ReplaceAll(want, "\t", ""), "\n")
	if got := s.log.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.log.Reset()
}

// bound returns a client that has 2001:db8::7 since 1 s after dawn, with T1 500 s, T2 800 s, and a
// valid time of 2000 s.
func bound(t *testing.T, p v6.Params) *sim {
	t.Helper()
	s := newSim(newServer(), p).start(nil).run(2 * time.Second)
	s.expect(t, `
		0s SOLICIT
		1s REQUEST to server 2001:db8::7
		1s bind 2001:db8::7
	`)
	return s
}

func earlier() *v6.Lease {
	return &v6.Lease{Addresses: []v6.Address{{Addr: netip.MustParseAddr("2001:db8::7"),
		Preferred: dawn.Add(1000 * time.Second), Valid: dawn.Add(2000 * time.Second)}},
		Server: v6.DUID("server"), Renew: dawn.Add(500 * time.Second),
		Rebind: dawn.Add(800 * time.Second)}
}

func TestRenewsForHours(t *testing.T) {
	t.Parallel()
	s := bound(t, v6.Params{})
	s.run(1000*time.Second).expect(t, `
		8m21s RENEW to server 2001:db8::7
		8m21s bind 2001:db8::7
		16m41s RENEW to server 2001:db8::7
		16m41s bind 2001:db8::7
	`)
	s.run(500 * 1000 * time.Second)
	if n := strings.Count(s.log.String(), "bind"); n != 1000 {
		t.Errorf("%d renewals, want 1000", n)
	}
}

func TestRebindsAndExpires(t *testing.T) {
	t.Parallel()
	s := bound(t, v6.Params{Total: time.Minute})
	s.mute = true
	s.run(900*time.Second).expect(t, `
		8m21s RENEW to server 2001:db8::7
		8m31s RENEW to server 2001:db8::7
		8m51s RENEW to server 2001:db8::7
		9m31s RENEW to server 2001:db8::7
		10m51s RENEW to server 2001:db8::7
		13m21s REBIND 2001:db8::7
		13m31s REBIND 2001:db8::7
		13m51s REBIND 2001:db8::7
		14m31s REBIND 2001:db8::7
	`)
	s.run(1100*time.Second).expect(t, `
		15m51s REBIND 2001:db8::7
		18m31s REBIND 2001:db8::7
		23m51s REBIND 2001:db8::7
		33m21s lose 2001:db8::7: the lease has expired: no answer to the REBIND in 7 tries
		33m21s SOLICIT
	`)
	if s.run(100 * time.Hour); strings.Contains(s.log.String(), "fail") {
		t.Error("a client that has had a lease gives up")
	}
	s.mute, s.name = false, "other"
	if s.run(2 * time.Hour); s.m.Held == nil || s.m.Held.Server.String() != "6f74686572" {
		t.Errorf("has %+v", s.m.Held)
	}
}

func TestAnotherServerRebinds(t *testing.T) {
	t.Parallel()
	s := bound(t, v6.Params{})
	s.name = "other"
	s.run(800 * time.Second)
	if !strings.HasSuffix(s.log.String(), "13m21s REBIND 2001:db8::7\n13m21s bind 2001:db8::7\n") {
		t.Errorf("got\n%s", &s.log)
	}
}

// RFC 8415 section 15: IRT, then about twice as long each time, up to MRT. Servers can change
// SOL_MAX_RT.
func TestSolicitTimes(t *testing.T) {
	t.Parallel()
	times := func(s *sim) (list string) {
		for line := range strings.Lines(s.log.String()) {
			when, what, _ := strings.Cut(line, " ")
			if what != "SOLICIT\n" {
				t.Errorf("got %s", line)
			}
			list += when + " "
		}
		return list
	}
	s := newSim(&server{mute: true}, v6.Params{}).start(nil).run(4 * time.Hour)
	if got, want := times(s),
		"0s 1s 3s 7s 15s 31s 1m3s 2m7s 4m15s 8m31s 17m3s 34m7s 1h8m15s 2h8m15s 3h8m15s "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s = newSim(newServer(), v6.Params{})
	s.alter = func(r *v6.Message) {
		set(r, dhcpv6.OptionIANA, nil)
		set(r, dhcpv6.OptionSolMaxRT,
			uint32s(60))
	}
	s.start(nil).run(5 * time.Minute)
	if got, want := times(s), "0s 1s 3s 7s 15s 31s 1m3s 2m3s 3m3s 4m3s "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The jitter of RFC 8415 section 15 is plus or minus a tenth; for the first SOLICIT it is only
// positive.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{0, 1, 1000, 1001, 2000} {
		m := v6.New(v6.Params{ClientID: client, Rand: func() uint64 { return n }})
		_, sent := m.Start(dawn, nil)
		_, next := m.Tick(sent)
		if d := next.Sub(sent); d <= time.Second || d > 1100*time.Millisecond {
			t.Errorf("first: %v", d)
		}
		_, after := m.Tick(next)
		if got, first := after.Sub(next), next.Sub(sent); got < first*19/10 || got > first*21/10 {
			t.Errorf("%v after %v", got, first)
		}
	}
}

// Clients that got their leases at the same moment do not send at the same time: T1 and T2 move
// forward by up to a tenth, and never back. A stateless client waits at least the minimum time (RFC
// 8415 section 21.23).
func TestRenewalsAreSpread(t *testing.T) {
	t.Parallel()
	renewals, refreshes := map[int]bool{}, map[int]bool{}
	for n := range uint64(100) {
		// Arbitrary, and different for each client.
		random := func() uint64 { return n * 0x9e3779b97f4a7c15 }
		s := newSim(newServer(), v6.Params{Rand: random}).start(nil).run(5 * time.Second)
		l := s.m.Held
		got := l.Addresses[0].Valid.Add(-2000 * time.Second)
		renew, rebind := l.Renew.Sub(got), l.Rebind.Sub(got)
		if renew > 500*time.Second || renew <= 450*time.Second || rebind > 800*time.Second ||
			rebind <= 720*time.Second {
			t.Errorf("T1 %v, T2 %v", renew, rebind)
		}
		renewals[int(renew.Seconds())] = true
		s = newSim(newServer(), v6.Params{Rand: random, Stateless: true})
		s.alter = func(r *v6.Message) { set(r, dhcpv6.OptionInformationRefreshTime, uint32s(1600)) }
		s.start(nil).run(time.Second)
		refresh := s.m.Held.Renew.Sub(dawn)
		if refresh > 1601*time.Second || refresh < 1500*time.Second {
			t.Errorf("asks again after %v", refresh)
		}
		refreshes[int(refresh.Seconds())] = true
	}
	if len(renewals) < 25 || len(refreshes) < 50 {
		t.Errorf("100 clients ask in %d different seconds, stateless ones in %d", len(renewals),
			len(refreshes))
	}
}

func TestServersAreCompared(t *testing.T) {
	t.Parallel()
	better := func(p byte) *server {
		s := newServer()
		s.name, s.granted = "better", []granted{{"2001:db8::8", 1000, 2000}}
		s.alter = func(r *v6.Message) { set(r, dhcpv6.OptionPreference, []byte{p}) }
		return s
	}
	for _, row := range []struct {
		name   string
		second *server
		want   string
	}{
		{"the same preference", better(0),
			"0s SOLICIT\n1s REQUEST to server 2001:db8::7\n1s bind 2001:db8::7\n"},
		{"a higher one", better(1),
			"0s SOLICIT\n1s REQUEST to better 2001:db8::8\n1s bind 2001:db8::8\n"},
		{"the highest ends the wait", better(255),
			"0s SOLICIT\n0s REQUEST to better 2001:db8::8\n0s bind 2001:db8::8\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(newServer(), v6.Params{})
			s.others = []*server{row.second}
			s.start(nil).run(2*time.Second).expect(t, row.want)
		})
	}
	t.Run("after the first second, the first", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.mute = true
		s.start(nil).run(2 * time.Second)
		s.mute = false
		s.run(2*time.Second).expect(t,
			"0s SOLICIT\n1s SOLICIT\n3s SOLICIT\n3s REQUEST to server 2001:db8::7\n3s bind 2001:db8::7\n")
	})
}

// An unexpected REPLY is ignored.
func TestNotAskedFor(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v6.Params{})
	s.alter = func(r *v6.Message) { r.Type = v6.Reply }
	s.start(nil).run(time.Millisecond).expect(t, "0s SOLICIT\n")
}

func TestRequestIsRefused(t *testing.T) {
	t.Parallel()
	const solicits = "0s SOLICIT\n1s REQUEST to server 2001:db8::7\n"
	for _, row := range []struct {
		name   string
		code   uint16
		want   string
		reason string
	}{
		{"UnspecFail: the same request again", 1, solicits + "2s REQUEST to server 2001:db8::7\n",
			""},
		{"UseMulticast: the same request again", 5, solicits + "2s REQUEST to server 2001:db8::7\n",
			""},
		{"NoAddrsAvail: another attempt", 2, solicits + "2s SOLICIT\n",
			"the server answered NoAddrsAvail: no?way"},
		{"NoBinding: another attempt", 3, solicits + "2s SOLICIT\n",
			"the server answered NoBinding: no?way"},
		{"NotOnLink: another attempt", 4, solicits + "2s SOLICIT\n",
			"the server answered NotOnLink: no?way"},
		{"unknown status: another attempt", 99, solicits + "2s SOLICIT\n",
			"the server answered status 99: no?way"},
	} {
		for where, code := range map[string]map[v6.Type]uint16{"message": {v6.Request: row.code},
			"IA": nil} {
			t.Run(row.name+", in the "+where, func(t *testing.T) {
				t.Parallel()
				s := newSim(newServer(), v6.Params{})
				if s.status = code; code == nil {
					s.ia = map[v6.Type]uint16{v6.Request: row.code}
				}
				s.start(nil).run(2500*time.Millisecond).expect(t, row.want)
				if s.m.Refused != row.reason {
					t.Errorf("got %q, want %q", s.m.Refused, row.reason)
				}
			})
		}
	}
	t.Run("without a limit: pauses grow", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.status = map[v6.Type]uint16{v6.Request: 2}
		s.start(nil).run(24 * time.Hour)
		if n := strings.Count(s.log.String(), "SOLICIT"); n < 20 || n > 50 {
			t.Errorf("%d attempts in a day", n)
		}
	})
	t.Run("no answer: another attempt after ten tries", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.alter = func(*v6.Message) { s.mute = true }
		s.start(nil).run(215 * time.Second)
		if n := strings.Count(s.log.String(), "REQUEST"); n != 10 ||
			!strings.HasSuffix(s.log.String(), "SOLICIT\n") {
			t.Errorf("got\n%s", &s.log)
		}
		if want := "no answer to the REQUEST in 10 tries"; s.m.Refused != want {
			t.Errorf("got %q, want %q", s.m.Refused, want)
		}
	})
}

func TestNoMoreTries(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v6.Params{Total: 10 * time.Second})
	s.ia = map[v6.Type]uint16{v6.Solicit: 2}
	s.start(nil).run(time.Hour).expect(t, `
		0s SOLICIT
		1s SOLICIT
		3s SOLICIT
		7s SOLICIT
		10s fail: no answer to the SOLICIT in 4 tries: the server answered NoAddrsAvail: no?way
	`)
	if !s.m.Stopped() || !s.wake.IsZero() {
		t.Errorf("%s, wakes at %v", s.m.State(), s.wake)
	}
	s = newSim(newServer(), v6.Params{Total: time.Second}).start(nil)
	s.now = s.now.Add(time.Minute) // the caller was late
	s.do(s.m.Tick(s.now))
	s.expect(t, "1m0s fail: there was no time left to ask a server\n")
}

func TestServerHasForgotten(t *testing.T) {
	t.Parallel()
	s := bound(t, v6.Params{})
	s.ia = map[v6.Type]uint16{v6.Renew: 3}
	s.run(500*time.Second).expect(t, `
		8m21s RENEW to server 2001:db8::7
		8m21s REQUEST to server 2001:db8::7
		8m21s bind 2001:db8::7
	`)
	s.granted[0].addr = "2001:db8::8"
	s.run(500*time.Second).expect(t, `
		16m41s RENEW to server 2001:db8::7
		16m41s REQUEST to server 2001:db8::7
		16m41s bind 2001:db8::8 instead of 2001:db8::7
	`)
	// A client keeps its address until it expires, even if the server has forgotten it and has no
	// other.
	s.ia[v6.Request], s.ia[v6.Solicit] = 2, 2
	s.run(1999 * time.Second)
	if s.m.Held == nil || strings.Contains(s.log.String(), "lose") {
		t.Errorf("got\n%s", &s.log)
	}
	if s.run(time.Second); s.m.Held != nil ||
		!strings.Contains(s.log.String(), "50m1s lose 2001:db8::8") {
		t.Errorf("got\n%s", &s.log)
	}
	s.ia = nil
	if s.run(time.Hour); s.m.Held == nil {
		t.Errorf("got\n%s", &s.log)
	}
}

func TestRenewalIsRefused(t *testing.T) {
	t.Parallel()
	for _, code := range []uint16{1, 2, 4, 5, 99} {
		s := bound(t, v6.Params{})
		s.status = map[v6.Type]uint16{v6.Renew: code, v6.Rebind: code}
		s.run(1990 * time.Second)
		if s.m.Held == nil || strings.Count(s.log.String(), "\n") != 12 ||
			!strings.Contains(s.log.String(), "REBIND") {
			t.Errorf("status %d: has %v\n%s", code, s.m.Held, &s.log)
		}
	}
}

func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v6.Params{})
	s.granted = []granted{{"2001:db8::7", 1000, 2000}, {"2001:db8::8", 600, 700},
		{"2001:db8::9", ever, ever}}
	s.t1, s.t2 = 0, 0
	s.start(nil).run(2*time.Second).expect(t, `
		0s SOLICIT
		1s REQUEST to server 2001:db8::7 2001:db8::8 2001:db8::9
		1s bind 2001:db8::7 2001:db8::8 2001:db8::9
	`)
	// The server withdraws one address, omits one and adds one. T1 derives from the shortest
	// preferred time, 600 s.
	s.granted = []granted{{"2001:db8::7", 0, 0}, {"2001:db8::9", 10000, 20000},
		{"2001:db8::a", 10000, 20000}}
	s.run(300*time.Second).expect(t, `
		5m1s RENEW to server 2001:db8::7 2001:db8::8 2001:db8::9
		5m1s bind 2001:db8::8 2001:db8::9 2001:db8::a instead of 2001:db8::7 2001:db8::8 2001:db8::9
	`)
	s.run(1000*time.Second).expect(t, `
		11m41s bind 2001:db8::9 2001:db8::a instead of 2001:db8::8 2001:db8::9 2001:db8::a
	`)
	// The server withdraws all addresses.
	s.granted = []granted{{"2001:db8::9", 0, 0}}
	s.run(4010*time.Second).expect(t, `
		1h28m21s RENEW to server 2001:db8::9 2001:db8::a
		1h28m21s bind 2001:db8::a instead of 2001:db8::9 2001:db8::a
		1h28m31s RENEW to server 2001:db8::a
	`)
	s.granted = []granted{{"2001:db8::a", 0, 0}}
	s.run(20 * time.Second)
	if !strings.Contains(s.log.String(),
		"lose 2001:db8::a: the server has withdrawn the addresses\n") {
		t.Errorf("got\n%s", &s.log)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name             string
		t1, t2           uint32
		preferred, valid uint32
		want             [2]time.Duration // T1, T2; 0 stands for never
	}{
		{"the server decides", 100, 200, 1000, 2000,
			[2]time.Duration{100 * time.Second, 200 * time.Second}},
		{"the client decides", 0, 0, 1000, 2000,
			[2]time.Duration{500 * time.Second, 800 * time.Second}},
		{"the client decides on T2", 900, 0, 1000, 2000,
			[2]time.Duration{900 * time.Second, 900 * time.Second}},
		{"the client decides on T1", 0, 300, 1000, 2000,
			[2]time.Duration{300 * time.Second, 300 * time.Second}},
		{"no preferred time", 0, 0, 0, 2000,
			[2]time.Duration{1000 * time.Second, 1600 * time.Second}},
		{"an infinite preferred time, T1 and T2 too late", 3000, 4000, ever, ever,
			[2]time.Duration{3000 * time.Second, 4000 * time.Second}},
		{"T1 and T2 after the end", 3000, 4000, 1000, 2000,
			[2]time.Duration{1000 * time.Second, 1600 * time.Second}},
		{"T1 and T2 never, with an expiry", ever, ever, 1000, 2000,
			[2]time.Duration{1000 * time.Second, 1600 * time.Second}},
		{"all infinite", 0, 0, ever, ever, [2]time.Duration{}},
		{"the longest that ends", 0, 0, ever - 1, ever - 1,
			[2]time.Duration{(ever - 1) * time.Second / 2, (ever - 1) * time.Second / 10 * 8}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(newServer(), v6.Params{})
			// No other server to compare with.
			s.alter = func(r *v6.Message) { set(r, dhcpv6.OptionPreference, []byte{255}) }
			s.t1, s.t2, s.granted = row.t1, row.t2,
				[]granted{{"2001:db8::7", row.preferred, row.valid}}
			s.start(nil).run(500 * time.Millisecond)
			l := s.m.Held
			if l == nil {
				t.Fatal(s.log.String())
			}
			for i, at := range []time.Time{l.Renew, l.Rebind} {
				if got := at.Sub(dawn).Round(time.Second); row.want[i] == 0 && !at.IsZero() ||
					row.want[i] > 0 && got != row.want[i].Round(time.Second) {
					t.Errorf("T%d: got %v, want %v", i+1, at, row.want[i])
				}
			}
			if row.want[1] == 0 && !s.wake.IsZero() {
				t.Errorf("wakes at %v", s.wake)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	t.Run("the addresses fit", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{}).start(earlier()).run(501 * time.Second)
		s.expect(t, "0s CONFIRM 2001:db8::7\n8m20s RENEW to server 2001:db8::7\n8m20s bind 2001:db8::7\n")
	})
	t.Run("a renewal is due", func(t *testing.T) {
		t.Parallel()
		for after, want := range map[time.Duration]string{500 * time.Second: "8m20s RENEW to server 2001:db8::7\n8m20s bind 2001:db8::7\n", 900 * time.Second: "15m0s REBIND 2001:db8::7\n15m0s bind 2001:db8::7\n"} {
			s := newSim(newServer(), v6.Params{})
			s.now = dawn.Add(after)
			s.start(earlier()).expect(t, want)
		}
	})
	t.Run("the addresses do not fit", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.status = map[v6.Type]uint16{v6.Confirm: 4}
		s.granted[0].addr = "2001:db8:1::7"
		s.start(earlier()).run(2*time.Second).expect(t, `
			0s CONFIRM 2001:db8::7
			0s lose 2001:db8::7: the server answered NotOnLink: no?way
			0s SOLICIT
			1s REQUEST to server 2001:db8:1::7
			1s bind 2001:db8:1::7
		`)
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		s := newSim(&server{mute: true}, v6.Params{}).start(earlier()).run(time.Minute)
		s.expect(t, "0s CONFIRM 2001:db8::7\n1s CONFIRM 2001:db8::7\n3s CONFIRM 2001:db8::7\n7s CONFIRM 2001:db8::7\n")
		if s.m.State() != "bound" || s.m.Held == nil {
			t.Errorf("%s with %v", s.m.State(), s.m.Held)
		}
	})
	t.Run("it has already expired", func(t *testing.T) {
		t.Parallel()
		l := earlier()
		l.Addresses[0].Valid = dawn
		newSim(&server{mute: true}, v6.Params{}).start(l).run(500*time.Millisecond).expect(t,
			"0s SOLICIT\n")
	})
	t.Run("it expires meanwhile", func(t *testing.T) {
		t.Parallel()
		l := earlier()
		l.Addresses[0].Valid = dawn.Add(2 * time.Second)
		newSim(&server{mute: true}, v6.Params{}).start(l).run(2500*time.Millisecond).expect(t, `
			0s CONFIRM 2001:db8::7
			1s CONFIRM 2001:db8::7
			2s lose 2001:db8::7: the lease has expired: no answer to the CONFIRM in 2 tries
			2s SOLICIT
		`)
	})
}

func TestDecline(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("2001:db8::7")
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		s := bound(t, v6.Params{})
		// Not an address of the client.
		s.do(s.m.Declined(s.now, netip.MustParseAddr("2001:db8::99")))
		s.do(s.m.Declined(s.now, a))
		s.granted[0].addr = "2001:db8::8"
		s.run(10*time.Second).expect(t, `
			2s lose 2001:db8::7: in use by other nodes: [2001:db8::7]
			2s DECLINE to server 2001:db8::7
			3s SOLICIT
			4s REQUEST to server 2001:db8::8
			4s bind 2001:db8::8
		`)
	})
	t.Run("one of two, and no answer", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.granted = append(s.granted, granted{"2001:db8::8", 1000, 2000})
		s.start(nil).run(2 * time.Second)
		s.log.Reset()
		s.mute = true
		s.do(s.m.Declined(s.now, a))
		s.run(30*time.Second).expect(t, `
			2s bind 2001:db8::8 instead of 2001:db8::7 2001:db8::8
			2s DECLINE to server 2001:db8::7
			3s DECLINE to server 2001:db8::7
			5s DECLINE to server 2001:db8::7
			9s DECLINE to server 2001:db8::7
		`)
		if s.m.State() != "bound" {
			t.Error(s.m.State())
		}
		s.mute = false
		s.run(480*time.Second).expect(t,
			"8m21s RENEW to server 2001:db8::8\n8m21s bind 2001:db8::8 2001:db8::7 instead of 2001:db8::8\n")
	})
}

// New addresses are probed before use, and addresses of other nodes are declined.
func TestProbe(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("2001:db8::7")
	const begins = "0s SOLICIT\n1s REQUEST to server 2001:db8::7\n1s probe [2001:db8::7]\n"
	t.Run("free", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true})
		s.probe = true
		s.start(nil).run(2*time.Second).expect(t, begins+"1s bind 2001:db8::7\n")
		// Already probed.
		s.run(500*time.Second).expect(t,
			"8m21s RENEW to server 2001:db8::7\n8m21s bind 2001:db8::7\n")
		// Not expected.
		s.do(s.m.Probed(s.now, a))
		s.expect(t, "")
	})
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true})
		s.start(nil).run(2*time.Second).expect(t, begins)
		s.granted[0].addr, s.probe = "2001:db8::8", true
		s.do(s.m.Probed(s.now, a, netip.MustParseAddr("2001:db8::99")))
		s.run(10*time.Second).expect(t, `
			2s DECLINE to server 2001:db8::7
			3s SOLICIT
			4s REQUEST to server 2001:db8::8
			4s probe [2001:db8::8]
			4s bind 2001:db8::8
		`)
	})
	t.Run("all are taken, until the time limit", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true, Total: time.Minute})
		s.probe, s.used = true, []netip.Addr{a}
		s.start(nil).run(time.Hour)
		if got := s.log.String(); strings.Count(got, "DECLINE") != 6 ||
			!strings.HasSuffix(got, "fail: in use by other nodes: [2001:db8::7]\n") {
			t.Errorf("got\n%s", got)
		}
	})
	t.Run("one of two", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true})
		s.granted = append(s.granted, granted{"2001:db8::8", 1000, 2000})
		s.probe, s.used = true, []netip.Addr{a}
		s.start(nil).run(2*time.Second).expect(t, `
			0s SOLICIT
			1s REQUEST to server 2001:db8::7 2001:db8::8
			1s probe [2001:db8::7 2001:db8::8]
			1s bind 2001:db8::8
			1s DECLINE to server 2001:db8::7
		`)
	})
	t.Run("a new one in a renewal", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true})
		s.probe = true
		s.start(nil).run(2 * time.Second)
		s.log.Reset()
		s.granted = append(s.granted, granted{"2001:db8::8", 1000, 2000})
		s.used = []netip.Addr{netip.MustParseAddr("2001:db8::8")}
		s.run(500*time.Second).expect(t, `
			8m21s RENEW to server 2001:db8::7
			8m21s probe [2001:db8::8]
			8m21s bind 2001:db8::7
			8m21s DECLINE to server 2001:db8::8
		`)
	})
	t.Run("the caller does not probe", func(t *testing.T) {
		t.Parallel()
		newSim(newServer(), v6.Params{Probe: true,
			Total: 5 * time.Second}).start(nil).run(time.Minute).expect(t,
			begins+"11s bind 2001:db8::7\n")
	})
	t.Run("the probe takes longer than the lease", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true, Total: 11 * time.Second})
		s.granted, s.t1, s.t2 = []granted{{"2001:db8::7", 4, 5}}, 2, 3
		s.start(nil).run(time.Minute).expect(t,
			begins+"11s fail: the server gave addresses for a shorter time than the probe takes\n")
	})
	t.Run("released meanwhile", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{Probe: true}).start(nil).run(2 * time.Second)
		s.do(s.m.Release(s.now))
		s.expect(t, begins+"2s RELEASE to server 2001:db8::7\n")
	})
}

func TestRelease(t *testing.T) {
	t.Parallel()
	t.Run("the server answers", func(t *testing.T) {
		t.Parallel()
		s := bound(t, v6.Params{})
		s.do(s.m.Release(s.now))
		s.expect(t, "2s RELEASE to server 2001:db8::7\n")
		if !s.m.Stopped() || s.m.Held != nil ||
			!bytes.Equal(s.last.Get(dhcpv6.OptionClientID), client) {
			t.Errorf("%s, %v", s.m.State(), s.last)
		}
	})
	t.Run("the server does not answer", func(t *testing.T) {
		t.Parallel()
		s := bound(t, v6.Params{})
		s.mute = true
		s.do(s.m.Release(s.now))
		s.run(time.Hour).expect(t, `
			2s RELEASE to server 2001:db8::7
			3s RELEASE to server 2001:db8::7
			5s RELEASE to server 2001:db8::7
			9s RELEASE to server 2001:db8::7
		`)
		if !s.m.Stopped() {
			t.Error(s.m.State())
		}
	})
	t.Run("R-59: during a pause it is immediate", func(t *testing.T) {
		t.Parallel()
		s := newSim(newServer(), v6.Params{})
		s.status = map[v6.Type]uint16{v6.Request: 2}
		s.start(nil).run(1500 * time.Millisecond)
		s.log.Reset()
		if want := "waiting for the next attempt"; s.m.State() != want {
			t.Fatalf("%s, want %s", s.m.State(), want)
		}
		s.do(s.m.Release(s.now))
		if s.run(time.Hour).expect(t, ""); !s.m.Stopped() {
			t.Error(s.m.State())
		}
	})
}

func TestStateless(t *testing.T) {
	t.Parallel()
	dns := netip.MustParseAddr("2001:db8::53").AsSlice()
	s := newSim(newServer(), v6.Params{Stateless: true,
		Request: []dhcpv6.OptionCode{dhcpv6.OptionDNSRecursiveNameServer}})
	s.alter = func(r *v6.Message) { set(r, dhcpv6.OptionDNSRecursiveNameServer, dns) }
	s.start(nil).run(25*time.Hour).expect(t, `
		0s INFORMATION-REQUEST
		0s bind dns [2001:db8::53]
		24h0m0s INFORMATION-REQUEST
		24h0m0s bind dns [2001:db8::53]
	`)
	if got := s.last.Get(dhcpv6.OptionORO); !bytes.Equal(got,
		[]byte{0, byte(dhcpv6.OptionInformationRefreshTime), 0, byte(dhcpv6.OptionInfMaxRT), 0,
			byte(dhcpv6.OptionDNSRecursiveNameServer)}) || s.last.Get(dhcpv6.OptionIANA) != nil {
		t.Errorf("asks for %v", got)
	}
	for _, row := range []struct {
		name    string
		refresh uint32
		want    time.Duration
	}{{"as the server says", 1000, 1000 * time.Second},
		{"no less than ten minutes", 1, 600 * time.Second}, {"never", ever, 0}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(newServer(), v6.Params{Stateless: true})
			s.alter = func(r *v6.Message) {
				set(r, dhcpv6.OptionInformationRefreshTime,
					uint32s(row.refresh))
			}
			s.start(&v6.Lease{DNS: []netip.Addr{netip.AddrFrom16([16]byte(dns))}}).run(time.Second).expect(t, "0s INFORMATION-REQUEST\n0s bind instead of dns [2001:db8::53]\n")
			if s.wake.IsZero() != (row.want == 0) || row.want > 0 &&
				s.wake.Sub(dawn).Round(time.Second) != row.want {
				t.Errorf("wakes at %v", s.wake)
			}
			s.do(s.m.Release(s.now))
			if s.expect(t, ""); !s.m.Stopped() {
				t.Error(s.m.State())
			}
		})
	}
}

// The options of messages: RFC 8415 section 18.2.
func TestMessages(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(),
		v6.Params{Request: []dhcpv6.OptionCode{dhcpv6.OptionDNSRecursiveNameServer}})
	s.mute = true
	s.start(nil).run(3500 * time.Millisecond)
	if got, want := v6text(s.last), "SOLICIT [1 8 3 6] elapsed 300 asks 82 23"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.mute = false
	s.run(4 * time.Second)
	if got, want := v6text(s.last), "REQUEST [1 2 8 3 6] elapsed 0 asks 82 23"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.do(s.m.Release(s.now))
	if got, want := v6text(s.last), "RELEASE [1 2 8 3] elapsed 0 asks"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
