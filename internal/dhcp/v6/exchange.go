package v6

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// timing is the schedule of a message (RFC 8415 section 7.6). MRD is in exchange.end.
type timing struct {
	first, most time.Duration // IRT, MRT
	tries       int           // MRC; 0 for no limit
}

func (m *Machine) timing() timing {
	return [...]timing{
		soliciting: {first: time.Second, most: m.solMax},
		requesting: {first: time.Second, most: 30 * time.Second, tries: 10},
		confirming: {first: time.Second, most: 4 * time.Second},
		informing:  {first: time.Second, most: m.infMax},
		renewing:   {first: 10 * time.Second, most: 600 * time.Second},
		rebinding:  {first: 10 * time.Second, most: 600 * time.Second},
		declining:  {first: time.Second, tries: 4},
		releasing:  {first: time.Second, tries: 4},
	}[m.state]
}

// confirmTime is the MRD of CONFIRM.
const confirmTime = 10 * time.Second

// exchange is a message that the client repeats until it gets an answer.
type exchange struct {
	xid    uint32
	began  time.Time     // time of the first transmission
	end    time.Time     // MRD; zero for none
	tries  int           // number of transmissions
	rt     time.Duration // RT: time until the next transmission
	server DUID          // nil for all
	hints  []netip.Addr  // addresses of the request
	best   *Message      // best ADVERTISE so far
	odd    string        // the error in an answer that the client refused
}

// ask enters a state with a new exchange.
func (m *Machine) ask(now time.Time, s state, server DUID, about []netip.Addr) {
	m.state = s
	m.ex = exchange{xid: uint32(m.p.Rand()) & 0xffffff, server: server, hints: about}
	m.send(now)
}

// soon asks all servers after up to a second, so that clients that start at the same time do not
// send at the same time (RFC 8415 sections 18.2.1, 18.2.3, 18.2.6).
func (m *Machine) soon(now time.Time, s state, about []netip.Addr) {
	m.state = s
	m.ex = exchange{xid: uint32(m.p.Rand()) & 0xffffff, hints: about}
	m.Wake = now.Add(time.Duration(m.p.Rand() % uint64(time.Second)))
}

// send sends the message of the state, and sets the time to wait for an answer (RFC 8415 section
// 15).
func (m *Machine) send(now time.Time) {
	t := m.timing()
	if m.ex.tries == 0 {
		m.ex.began = now
		m.ex.rt = t.first + m.jitter(t.first)
		if m.state == soliciting { // longer than IRT: section 18.2.1
			m.ex.rt = t.first + max(1, t.first-m.ex.rt, m.ex.rt-t.first)
		}
		switch m.state {
		case confirming:
			m.ex.end = now.Add(confirmTime)
		case renewing:
			m.ex.end = m.Held.Rebind
		}
	} else {
		m.ex.rt = 2*m.ex.rt + m.jitter(m.ex.rt)
	}
	if t.most > 0 && m.ex.rt > t.most {
		m.ex.rt = t.most + m.jitter(t.most)
	}
	m.ex.tries++
	m.Wake = client.Earliest(now.Add(m.ex.rt), m.ex.end)
	m.Do(Send{m.message(now)})
}

// jitter is RAND: plus or minus up to a tenth.
func (m *Machine) jitter(d time.Duration) time.Duration {
	return d / 10000 * time.Duration(int64(m.p.Rand()%2001)-1000)
}

// kind returns the type of the message of a state.
func (s state) kind() Type {
	return [...]Type{
		soliciting: Solicit, requesting: Request, confirming: Confirm,
		informing: InformationRequest,
		renewing:  Renew, rebinding: Rebind, declining: Decline, releasing: Release,
	}[s]
}

// message returns the message of the state, with the options of RFC 8415 section 18.2.
func (m *Machine) message(now time.Time) *Message {
	msg := &Message{Type: m.state.kind(), XID: m.ex.xid}
	msg.Add(dhcpv6.OptionClientID, m.p.ClientID)
	if m.ex.server != nil {
		msg.Add(dhcpv6.OptionServerID, m.ex.server)
	}
	elapsed := min(max(now.Sub(m.ex.began)/(10*time.Millisecond), 0), 1<<16-1)
	msg.Add(dhcpv6.OptionElapsedTime, binary.BigEndian.AppendUint16(nil, uint16(elapsed)))
	if m.state != informing {
		msg.Options.Add(newIA(m.p.IAID, m.ex.hints))
	}
	switch m.state {
	case confirming, declining, releasing:
		return msg
	}
	own := []dhcpv6.OptionCode{dhcpv6.OptionSolMaxRT}
	if m.state == informing {
		own = []dhcpv6.OptionCode{dhcpv6.OptionInformationRefreshTime, dhcpv6.OptionInfMaxRT}
	}
	msg.Options.Add(dhcpv6.OptRequestedOption(append(own, m.p.Request...)...))
	return msg
}
