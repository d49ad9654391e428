package v6_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/v6"
)

// tape is the fuzzer's input, a series of decisions.
type tape []byte

func (b *tape) next() (n int) {
	if len(*b) > 0 {
		n, *b = int((*b)[0]), (*b)[1:]
	}
	return n
}

func pick[T any](b *tape, list ...T) T { return list[b.next()%len(list)] }

// reply returns a message to the client. Most of its parts are valid most of the time.
func (b *tape) reply(q *v6.Message) *v6.Message {
	times := []uint32{2000, 1000, 0, 1, 7, ever, ever - 1}
	s := &server{name: pick(b, "server", "server", "other", ""), t1: pick(b, times...),
		t2: pick(b, times...)}
	for range b.next() % 3 {
		s.granted = append(s.granted, granted{pick(b, "2001:db8::7", "2001:db8::8", "2001:db8::9",
			"fe80::1"), pick(b, times...), pick(b, times...)})
	}
	r := &v6.Message{Type: pick(b, v6.Advertise, v6.Reply, v6.Reply, v6.Type(b.next())), XID: q.XID}
	r.Add(dhcpv6.OptionClientID, client)
	r.Add(dhcpv6.OptionServerID, []byte(s.name))
	flags := b.next()
	if flags&1 > 0 {
		s.ia = map[v6.Type]uint16{0: uint16(b.next() % 7)}
	}
	if flags&2 > 0 {
		r.Add(dhcpv6.OptionStatusCode, status(uint16(b.next()%7)))
	}
	if flags&4 == 0 {
		r.Add(dhcpv6.OptionIANA, s.iana(0))
	}
	if flags&16 > 0 {
		r.Add(dhcpv6.OptionPreference, []byte{byte(b.next())})
	}
	if flags&32 > 0 {
		r.Add(dhcpv6.OptionCode(b.next()), uint32s(pick(b, times...)))
	}
	return r
}

// world holds the observable state of a client, and checks its invariants.
type world struct {
	t         *testing.T
	m         *v6.Machine
	stateless bool
	now       time.Time
	wake      time.Time
	last      *v6.Message
	has       *v6.Lease           // according to the actions
	granted   map[netip.Addr]bool // granted by a REPLY, or in an earlier run
	idle      int                 // wake-ups at the same time
}

func (w *world) check(actions []v6.Action, wake time.Time) {
	w.wake = wake
	if len(actions) > 3 {
		w.t.Fatalf("%d actions", len(actions))
	}
	for _, a := range actions {
		switch a := a.(type) {
		case v6.Send:
			q, err := v6.Decode(a.Message.Encode())
			if err != nil {
				w.t.Fatalf("sends %+v: %v", a.Message, err)
			}
			w.last = q
		case v6.Bind:
			if (a.Before == nil) != (w.has == nil) || w.has != nil && !a.Before.Same(*w.has) ||
				w.stateless != (len(a.Lease.Addresses) == 0) || len(a.Lease.Addresses) > 16 {
				w.t.Fatalf("bind %+v, has %+v", a, w.has)
			}
			for _, addr := range a.Lease.Addresses {
				if !w.granted[addr.Addr] || !addr.Valid.IsZero() && !w.now.Before(addr.Valid) {
					w.t.Fatalf("bind %+v", a)
				}
			}
			saved(w.t, a.Lease)
			w.has = &a.Lease
		case v6.Lose:
			if w.has == nil || !w.has.Same(a.Lease) || a.Reason == "" {
				w.t.Fatalf("lose %+v, has %+v", a, w.has)
			}
			w.has = nil
		case v6.Fail:
			if w.has != nil || !w.m.Stopped() || a.Reason == "" {
				w.t.Fatalf("%+v, has %+v", a, w.has)
			}
		}
	}
	w.invariant()
}

func (w *world) invariant() {
	l := w.m.Held
	if (l == nil) != (w.has == nil) || l != nil && !l.Same(*w.has) {
		w.t.Fatalf("has %+v, by its actions %+v", l, w.has)
	}
	switch {
	case w.m.Stopped():
		if !w.wake.IsZero() || l != nil {
			w.t.Fatalf("stopped, wakes at %v, has %v", w.wake, l)
		}
	case w.wake.IsZero():
		if l == nil || w.m.State() != "bound" {
			w.t.Fatalf("%s with %v never wakes", w.m.State(), l)
		}
	case w.wake.Before(w.now):
		w.t.Fatalf("%s wakes in the past, at %v of %v", w.m.State(), w.wake, w.now)
	}
	if l == nil {
		return
	}
	for _, a := range l.Addresses {
		if !a.Valid.IsZero() && (w.wake.IsZero() || w.wake.After(a.Valid)) {
			w.t.Fatalf("%s wakes at %v, an address ends at %v", w.m.State(), w.wake, a.Valid)
		}
	}
}

// tick advances the time to the next wake-up.
func (w *world) tick() {
	if w.wake.IsZero() {
		return
	}
	if w.idle++; w.wake.After(w.now) {
		w.now, w.idle = w.wake, 0
	}
	if w.idle > 3 {
		w.t.Fatalf("%s does not sleep", w.m.State())
	}
	w.check(w.m.Tick(w.now))
}

// In any order of events, a client holds only what it was granted, and sleeps between events.
func FuzzMachine(f *testing.F) {
	f.Add(byte(0), []byte{0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0})
	f.Add(byte(4), []byte{0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 3, 1, 5, 9, 9, 4})
	f.Add(byte(16), []byte{0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 7, 1, 0, 0, 1, 0, 1})
	f.Add(byte(2), []byte{0, 1, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, how byte, b []byte) {
		n := uint64(how)
		p := v6.Params{ClientID: client, IAID: 1, Stateless: how&2 > 0, Probe: how&16 > 0,
			Rand: func() uint64 { n = n*6364136223846793005 + 1; return n }}
		if how&8 > 0 {
			p.Total = 20 * time.Second
		}
		w := &world{t: t, m: v6.New(p), now: dawn, stateless: p.Stateless, last: &v6.Message{},
			granted: map[netip.Addr]bool{}}
		var l *v6.Lease
		if how&4 > 0 && !p.Stateless {
			l = earlier()
			w.has, w.granted[l.Addresses[0].Addr] = l, true
		}
		w.check(w.m.Start(w.now, l))
		events := tape(b[:min(len(b), 1000)])
		for len(events) > 0 {
			w.happen(&events)
		}
		// Without further events, it must not loop.
		began := w.now
		for range 100 {
			w.tick()
		}
		if !w.wake.IsZero() && w.now.Sub(began) < 30*time.Second {
			t.Fatalf("%s wakes 100 times in %v", w.m.State(), w.now.Sub(began))
		}
	})
}

func (w *world) happen(events *tape) {
	address := func() netip.Addr {
		return netip.MustParseAddr(pick(events, "2001:db8::7", "2001:db8::8", "2001:db8::9"))
	}
	switch events.next() % 8 {
	case 0:
		w.tick()
	case 1, 2:
		r := events.reply(w.last)
		if r.Type == v6.Reply {
			for v := r.Get(dhcpv6.OptionIANA); len(v) >= 12+28; v = v[28:] {
				w.granted[netip.AddrFrom16([16]byte(v[16:]))] = true
			}
		}
		w.check(w.m.Received(w.now, r))
	case 3:
		w.check(w.m.Declined(w.now, address(), address()))
	case 4: // the caller was late
		w.now = w.now.Add(time.Duration(events.next()*events.next()) * time.Second)
		w.check(w.m.Tick(w.now))
	case 5:
		w.has = nil
		w.check(w.m.Release(w.now))
		if events.next()&1 > 0 {
			w.m.Stop()
			w.check(w.m.Start(w.now, nil))
		}
	case 7:
		w.check(w.m.Probed(w.now, address()))
	case 6: // an unexpected answer
		r := events.reply(w.last)
		r.XID++
		if actions, _ := w.m.Received(w.now, r); len(actions) > 0 {
			w.t.Fatalf("%v", actions)
		}
	}
}
