package v4_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

var (
	mac   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	other = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	dawn  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// server answers as DHCP servers do, except for the changes of a test, which apply from then on.
type server struct {
	id, your  string
	mask      string
	time      uint32 // option 51; 0 stands for none
	options   []v4.Option
	mute, nak bool
	alter     func(*v4.Message)
	hardware  bool // another node has the address
}

func newServer() *server {
	return &server{id: "10.0.0.1", your: "10.0.0.7", mask: "255.255.255.0", time: 3600}
}

func (s *server) answer(q *v4.Message) []*v4.Message {
	if s == nil || s.mute {
		return nil
	}
	switch q.Type() {
	case v4.Discover:
		return []*v4.Message{s.reply(q, v4.Offer)}
	case v4.Request:
		if s.nak {
			return []*v4.Message{s.reply(q, v4.NAK)}
		}
		return []*v4.Message{s.reply(q, v4.ACK)}
	}
	return nil
}

func (s *server) reply(q *v4.Message, kind v4.Type) *v4.Message {
	r := &v4.Message{Reply: true, XID: q.XID, MAC: q.MAC}
	r.Set(v4.OptType, []byte{byte(kind)})
	r.Set(v4.OptServerID, ip(s.id))
	if kind == v4.NAK {
		r.Set(v4.OptMessage, []byte("not here\n\x00"))
	} else {
		r.Your = netip.MustParseAddr(s.your)
		r.Set(v4.OptSubnetMask, ip(s.mask))
		if s.time > 0 {
			r.Set(v4.OptLeaseTime, seconds(s.time))
		}
		for _, o := range s.options {
			r.Set(o.Code, o.Value)
		}
	}
	if s.alter != nil {
		s.alter(r)
	}
	return r
}

func ip(list ...string) (b []byte) {
	for _, s := range list {
		b = append(b, netip.MustParseAddr(s).AsSlice()...)
	}
	return b
}

func seconds(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// sim runs a client against a server in simulated time. It logs the client's actions with their
// times.
type sim struct {
	*server
	m    *v4.Machine
	now  time.Time
	wake time.Time
	log  strings.Builder
	last *v4.Message // last message of the client
}

// newSim returns a client that has not started.
func newSim(s *server, p v4.Params) *sim {
	p.MAC = mac
	n := uint64(time.Second)
	if p.Rand == nil {
		// Different transaction numbers, no jitter.
		p.Rand = func() uint64 { n += uint64(2 * time.Second); return n }
	}
	return &sim{server: s, m: v4.New(p), now: dawn}
}

func (s *sim) start(earlier *v4.Lease) *sim {
	s.do(s.m.Start(s.now, earlier))
	return s.run(0)
}

// run advances the time.
func (s *sim) run(d time.Duration) *sim {
	for end := s.now.Add(d); ; {
		if s.wake.IsZero() || s.wake.After(end) {
			s.now = end
			return s
		}
		s.now = s.wake
		s.do(s.m.Tick(s.now))
	}
}

func (s *sim) do(actions []v4.Action, wake time.Time) {
	s.wake = wake
	for _, a := range actions {
		fmt.Fprintf(&s.log, "%v ", s.now.Sub(dawn).Round(time.Millisecond))
		switch a := a.(type) {
		case v4.Send:
			s.send(a)
		case v4.Probe:
			fmt.Fprintf(&s.log, "probe %s\n", a.Address)
			if s.server.hardware {
				s.do(s.m.Probed(s.now, a.Address, other))
			}
		case v4.Bind:
			before := ""
			if a.Before != nil && !a.Lease.Same(*a.Before) {
				before = fmt.Sprintf(" instead of %s", a.Before.Address)
			}
			fmt.Fprintf(&s.log, "bind %s%s\n", a.Lease.Address, before)
		case v4.Lose:
			fmt.Fprintf(&s.log, "lose %s: %s\n", a.Lease.Address, a.Reason)
		case v4.Fail:
			fmt.Fprintf(&s.log, "fail: %s\n", a.Reason)
		}
	}
}

func (s *sim) send(a v4.Send) {
	q, err := v4.Decode(a.Message.Encode())
	if err != nil {
		panic(err)
	}
	s.last = q
	fmt.Fprint(&s.log, q.Type())
	if a.From.IsValid() {
		fmt.Fprintf(&s.log, " from %s", a.From)
	}
	if a.To.IsValid() {
		fmt.Fprintf(&s.log, " to %s", a.To)
	}
	if q.Client.IsValid() {
		fmt.Fprintf(&s.log, " ciaddr %s", q.Client)
	}
	for _, code := range []byte{v4.OptRequestedIP, v4.OptServerID} {
		if v, ok := q.Addr(code); ok {
			fmt.Fprintf(&s.log, " %d:%s", code, v)
		}
	}
	fmt.Fprintln(&s.log)
	for _, r := range s.server.answer(q) {
		if r, err := v4.Decode(r.Encode()); err == nil {
			s.do(s.m.Received(s.now, r))
		}
	}
}

// expect compares the log with want, and clears it.
func (s *sim) expect(t *testing.T, want string) {
	t.Helper()
	want = strings.TrimPrefix(strings.ReplaceAll(want, "\t", ""), "\n")
	if got := s.log.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.log.Reset()
}
