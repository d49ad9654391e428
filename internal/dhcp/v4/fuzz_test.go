package v4_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
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
func (b *tape) reply(q *v4.Message) *v4.Message {
	r := &v4.Message{Reply: true, XID: q.XID, MAC: q.MAC}
	r.Set(v4.OptType, []byte{pick(b, byte(v4.Offer), byte(v4.ACK), byte(v4.NAK), byte(v4.ACK),
		byte(b.next()))})
	r.Your = netip.MustParseAddr(pick(b, "10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.0",
		"224.0.0.1", "10.9.9.9"))
	if id := pick(b, "10.0.0.1", "10.0.0.1", "10.0.0.2", "0.0.0.0", ""); id != "" {
		r.Set(v4.OptServerID, ip(id))
	}
	if mask := pick(b, "255.255.255.0", "255.255.255.255", "0.0.0.0", ""); mask != "" {
		r.Set(v4.OptSubnetMask, ip(mask))
	}
	for _, code := range []byte{v4.OptLeaseTime, v4.OptRenewalTime, v4.OptRebindingTime} {
		if n := pick[int64](b, 3600, 0, 1, 1<<32-1, 1<<32-2, 7, -1); n >= 0 {
			r.Set(code, seconds(uint32(n)))
		}
	}
	if b.next()&1 > 0 {
		r.Set(byte(b.next()),
			[]byte{byte(b.next()), byte(b.next()), byte(b.next()), byte(b.next())})
	}
	return r
}

// world holds the observable state of a client, and checks its invariants.
type world struct {
	t       *testing.T
	m       *v4.Machine
	now     time.Time
	wake    time.Time
	last    *v4.Message
	has     *v4.Lease           // according to the actions
	granted map[netip.Addr]bool // granted by an ACK, or in an earlier run
	idle    int                 // wake-ups at the same time
}

func (w *world) check(actions []v4.Action, wake time.Time) {
	w.wake = wake
	if len(actions) > 3 {
		w.t.Fatalf("%d actions", len(actions))
	}
	for _, a := range actions {
		switch a := a.(type) {
		case v4.Send:
			q, err := v4.Decode(a.Message.Encode())
			if err != nil || q.Reply {
				w.t.Fatalf("sends %+v: %v", a.Message, err)
			}
			if q.Client.IsValid() && q.Type() == v4.Request &&
				(q.Get(v4.OptRequestedIP) != nil || q.Get(v4.OptServerID) != nil) {
				w.t.Fatalf("R-54: renews with %+v", q)
			}
			w.last = q
		case v4.Bind:
			if !w.granted[a.Lease.Address.Addr()] || a.Lease.Expired(w.now) ||
				(a.Before == nil) != (w.has == nil) || w.has != nil && !a.Before.Same(*w.has) {
				w.t.Fatalf("bind %+v, has %+v", a, w.has)
			}
			saved(w.t, a.Lease)
			w.has = &a.Lease
		case v4.Lose:
			if w.has == nil || w.has.Address != a.Lease.Address || a.Reason == "" {
				w.t.Fatalf("lose %+v, has %+v", a, w.has)
			}
			w.has = nil
		case v4.Fail:
			if w.has != nil || w.m.State() != "stopped" || a.Reason == "" {
				w.t.Fatalf("%+v, has %+v", a, w.has)
			}
		}
	}
	w.invariant()
}

func (w *world) invariant() {
	l := w.m.Held
	if (l == nil) != (w.has == nil) || l != nil && l.Address != w.has.Address {
		w.t.Fatalf("has %+v, by its actions %+v", l, w.has)
	}
	switch {
	case w.m.State() == "stopped":
		if !w.wake.IsZero() || l != nil {
			w.t.Fatalf("stopped, wakes at %v, has %v", w.wake, l)
		}
	case w.wake.IsZero():
		if l == nil || !l.Expires.IsZero() || w.m.State() != "bound" {
			w.t.Fatalf("%s with %v never wakes", w.m.State(), l)
		}
	case w.wake.Before(w.now):
		w.t.Fatalf("%s wakes in the past, at %v of %v", w.m.State(), w.wake, w.now)
	case l != nil && !l.Expires.IsZero() && w.wake.After(l.Expires):
		w.t.Fatalf("%s wakes at %v, the lease ends at %v", w.m.State(), w.wake, l.Expires)
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

func (w *world) start(l *v4.Lease) {
	w.has = nil
	if l != nil && !l.Expired(w.now) {
		w.has = l
		w.granted[l.Address.Addr()] = true
	}
	w.check(w.m.Start(w.now, l))
}

// In any order of events, a client holds only what it was granted, and sleeps between events.
func FuzzMachine(f *testing.F) {
	good := []byte{0, 0, 0, 0, 0, 0, 0, 0}
	ack := append([]byte{1, 1}, good[1:]...)
	f.Add(byte(0), append(append([]byte{1}, good...), append(ack, 0, 0, 0, 0)...))
	f.Add(byte(3), append(append([]byte{1}, good...), append(ack, 3, 1, 0, 0, 0)...))
	f.Add(byte(7), []byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 5, 4, 0, 6})
	f.Fuzz(func(t *testing.T, how byte, b []byte) {
		n := uint64(how)
		p := v4.Params{MAC: mac, ClientID: b, Probe: how&1 > 0, Broadcast: how&2 > 0,
			Timeout: time.Second, Rand: func() uint64 { n = n*6364136223846793005 + 1; return n }}
		if how&8 > 0 {
			p.Total = 20 * time.Second
		}
		w := &world{t: t, m: v4.New(p), now: dawn, last: &v4.Message{},
			granted: map[netip.Addr]bool{}}
		events := tape(b[:min(len(b), 1000)])
		if how&4 > 0 {
			w.start(earlier())
		} else {
			w.start(nil)
		}
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
	switch events.next() % 8 {
	case 0:
		w.tick()
	case 1, 2:
		r := events.reply(w.last)
		if r.Type() == v4.ACK {
			w.granted[r.Your] = true
		}
		w.check(w.m.Received(w.now, r))
	case 3:
		by := other
		if events.next()&1 > 0 {
			by = nil
		}
		w.check(w.m.Probed(w.now, netip.MustParseAddr(pick(events, "10.0.0.7", "10.0.0.8")), by))
	case 4, 5: // the caller was late
		w.now = w.now.Add(time.Duration(events.next()*events.next()) * time.Second)
		w.check(w.m.Tick(w.now))
	case 6:
		actions := w.m.Release()
		w.has = nil
		w.check(actions, time.Time{})
		w.start(nil)
	case 7: // an unexpected answer
		r := events.reply(w.last)
		r.XID++
		if actions, _ := w.m.Received(w.now, r); len(actions) > 0 {
			w.t.Fatalf("%v", actions)
		}
	}
}
