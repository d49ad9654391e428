package v4

import (
	"net/netip"
	"time"
)

// send sends the message of the state, and sets the time to wait for an answer.
func (m *Machine) send(now time.Time) {
	m.tries++
	m.asked = now
	if m.state != requesting { // RFC 2131 section 4.4.1: relays treat DISCOVER and REQUEST alike
		m.secs = uint16(max(0, min(now.Sub(m.began)/time.Second, 1<<16-1)))
	}
	switch m.state {
	case selecting:
		m.Do(Send{Message: m.question(Discover)})
	case requesting:
		msg := m.question(Request)
		msg.Set(OptRequestedIP, m.offered.address.AsSlice())
		msg.Set(OptServerID, m.offered.server.AsSlice())
		m.Do(Send{Message: msg})
	case rebooting:
		msg := m.question(Request)
		msg.Set(OptRequestedIP, m.Held.Address.Addr().AsSlice())
		m.Do(Send{Message: msg})
	case renewing, rebinding: // RFC 2131 section 4.3.6: the address is in ciaddr, and nowhere else
		msg := m.question(Request)
		msg.Client, msg.Broadcast = m.Held.Address.Addr(), false
		m.Do(Send{Message: msg, From: msg.Client, To: m.asksWhom()})
		m.Wake = m.next(now)
		return
	}
	m.Wake = now.Add(m.p.Timeout << (m.tries - 1))
}

// next returns the time at which to repeat a request to renew or rebind: after half of the time
// until the next step, but at most once a minute (RFC 2131 section 4.4.5) or, in a short lease,
// once in a twentieth of its time after T1.
func (m *Machine) next(now time.Time) time.Time {
	until := m.Held.Rebind
	if m.state == rebinding {
		until = m.Held.Expires
	}
	half := until.Sub(now) / 2
	if half < min(max(m.Held.Expires.Sub(m.Held.Renew)/20, time.Second), time.Minute) {
		return until
	}
	return now.Add(half)
}

// asksWhom returns the server of the request; an invalid address stands for any server.
func (m *Machine) asksWhom() (server netip.Addr) {
	switch m.state {
	case requesting:
		return m.offered.server
	case renewing:
		return m.Held.Server
	}
	return server
}

// question returns a message that expects an answer, with the options that all of them have.
func (m *Machine) question(kind Type) *Message {
	msg := m.message(kind)
	msg.Secs, msg.Broadcast = m.secs, m.p.Broadcast
	msg.Set(OptMaxMessageSize, []byte{maxMessage >> 8, maxMessage & 0xff})
	if len(m.p.Parameters) > 0 {
		msg.Set(OptParameters, m.p.Parameters)
	}
	for _, o := range m.p.Options {
		msg.Set(o.Code, o.Value)
	}
	return msg
}

// farewell returns a message that gives up an address. RFC 2131 table 5 does not allow more options
// in it.
func (m *Machine) farewell(kind Type, server netip.Addr) *Message {
	m.xid = uint32(m.p.Rand())
	msg := m.message(kind)
	if server.IsValid() {
		msg.Set(OptServerID, server.AsSlice())
	}
	return msg
}

// message returns a message with the options that all messages have. Without the identifier the
// server would not find the lease.
func (m *Machine) message(kind Type) *Message {
	msg := &Message{XID: m.xid, MAC: m.p.MAC}
	msg.Set(OptType, []byte{byte(kind)})
	if len(m.p.ClientID) > 0 {
		msg.Set(OptClientID, m.p.ClientID)
	}
	return msg
}
