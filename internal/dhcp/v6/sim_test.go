package v6_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/v6"
)

const ever = 1<<32 - 1

var (
	dawn   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	client = v6.DUID("\x00\x03\x00\x01client")
)

// granted is an address that a server grants, with its lifetimes in seconds.
type granted struct {
	addr             string
	preferred, valid uint32
}

// server answers as DHCPv6 servers do, except for the changes of a test, which apply from then on.
type server struct {
	name    string
	granted []granted
	t1, t2  uint32
	mute    bool
	status  map[v6.Type]uint16 // of answers, by type of message
	ia      map[v6.Type]uint16 // of the IA in answers
	alter   func(*v6.Message)
	probe   bool         // whether the caller answers a probe
	used    []netip.Addr // addresses for which the probe finds another owner
}

func newServer() *server {
	return &server{name: "server", granted: []granted{{"2001:db8::7", 1000, 2000}}, t1: 500,
		t2: 800}
}

func (s *server) answer(q *v6.Message) []*v6.Message {
	if s.mute {
		return nil
	}
	if id := q.Get(dhcpv6.OptionServerID); id != nil && string(id) != s.name {
		return nil
	}
	kind := v6.Reply
	if q.Type == v6.Solicit {
		kind = v6.Advertise
	}
	r := &v6.Message{Type: kind, XID: q.XID}
	r.Add(dhcpv6.OptionClientID, q.Get(dhcpv6.OptionClientID))
	r.Add(dhcpv6.OptionServerID, []byte(s.name))
	if code, ok := s.status[q.Type]; ok {
		r.Add(dhcpv6.OptionStatusCode, status(code))
	}
	switch q.Type {
	case v6.Solicit, v6.Request, v6.Renew, v6.Rebind:
		r.Add(dhcpv6.OptionIANA, s.iana(q.Type))
	}
	if s.alter != nil {
		s.alter(r)
	}
	return []*v6.Message{r}
}

func (s *server) iana(kind v6.Type) []byte {
	b := slices.Concat(uint32s(1, s.t1, s.t2))
	if code, ok := s.ia[kind]; ok {
		return append(b, option(dhcpv6.OptionStatusCode, status(code))...)
	}
	for _, l := range s.granted {
		b = append(b, option(dhcpv6.OptionIAAddr,
			append(netip.MustParseAddr(l.addr).AsSlice(), uint32s(l.preferred, l.valid)...))...)
	}
	return b
}

func status(code uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), "no\nway"...)
}

func uint32s(list ...uint32) (b []byte) {
	for _, n := range list {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func option(code dhcpv6.OptionCode, value []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(code))
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// set replaces an option.
func set(m *v6.Message, code dhcpv6.OptionCode, value []byte) {
	m.Options = slices.DeleteFunc(slices.Clone(m.Options),
		func(o dhcpv6.Option) bool { return o.Code() == code })
	if value != nil {
		m.Add(code, value)
	}
}

// sim runs a client against servers in simulated time. It logs the client's actions with their
// times.
type sim struct {
	*server
	others []*server
	m      *v6.Machine
	now    time.Time
	wake   time.Time
	log    strings.Builder
	last   *v6.Message // last message of the client
}

func newSim(s *server, p v6.Params) *sim {
	p.ClientID, p.IAID = client, 1
	n := uint64(1000)
	if p.Rand == nil {
		// Different transaction numbers, no jitter, 1 µs before the first message.
		p.Rand = func() uint64 { n += 2001 * 1e9; return n }
	}
	return &sim{server: s, m: v6.New(p), now: dawn}
}

func (s *sim) start(earlier *v6.Lease) *sim {
	s.do(s.m.Start(s.now, earlier))
	return s
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

func (s *sim) do(actions []v6.Action, wake time.Time) {
	s.wake = wake
	for _, a := range actions {
		fmt.Fprintf(&s.log, "%v ", s.now.Sub(dawn).Round(time.Millisecond))
		switch a := a.(type) {
		case v6.Send:
			s.send(a)
		case v6.Probe:
			fmt.Fprintf(&s.log, "probe %v\n", a.Addresses)
			if s.probe {
				s.do(s.m.Probed(s.now, s.used...))
			}
		case v6.Bind:
			before := ""
			if a.Before != nil && !a.Lease.Same(*a.Before) {
				before = " instead of" + text(a.Before)
			}
			fmt.Fprintf(&s.log, "bind%s%s\n", text(&a.Lease), before)
		case v6.Lose:
			fmt.Fprintf(&s.log, "lose%s: %s\n", text(&a.Lease), a.Reason)
		case v6.Fail:
			fmt.Fprintf(&s.log, "fail: %s\n", a.Reason)
		}
	}
}

func text(l *v6.Lease) (s string) {
	for _, a := range l.Addresses {
		s += " " + a.Addr.String()
	}
	if len(l.DNS) > 0 {
		s += fmt.Sprint(" dns ", l.DNS)
	}
	return s
}

func (s *sim) send(a v6.Send) {
	q, err := v6.Decode(a.Message.Encode())
	if err != nil {
		panic(err)
	}
	s.last = q
	fmt.Fprint(&s.log, q.Type)
	if id := q.Get(dhcpv6.OptionServerID); id != nil {
		fmt.Fprintf(&s.log, " to %s", id)
	}
	if v := q.Get(dhcpv6.OptionIANA); len(v) > 12 {
		for v = v[12:]; len(v) >= 28; v = v[28:] {
			fmt.Fprintf(&s.log, " %s", netip.AddrFrom16([16]byte(v[4:])))
		}
	}
	fmt.Fprintln(&s.log)
	for _, server := range append([]*server{s.server}, s.others...) {
		for _, r := range server.answer(q) {
			if r, err := v6.Decode(r.Encode()); err == nil {
				s.do(s.m.Received(s.now, r))
			}
		}
	}
}

// v6text describes a message with the codes of its options.
func v6text(m *v6.Message) string {
	var codes []uint16
	for _, o := range m.Options {
		codes = append(codes, uint16(o.Code()))
	}
	s := fmt.Sprintf("%v %v elapsed %d asks", m.Type, codes,
		binary.BigEndian.Uint16(m.Get(dhcpv6.OptionElapsedTime)))
	for v := m.Get(dhcpv6.OptionORO); len(v) > 0; v = v[2:] {
		s += fmt.Sprint(" ", binary.BigEndian.Uint16(v))
	}
	return s
}
