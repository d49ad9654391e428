package v6

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// state is where the client is in RFC 8415 section 18.2.
type state int

const (
	stopped    state = iota
	paused           // between two attempts
	soliciting       // servers are looked for
	requesting       // one of them is asked for addresses
	probing          // the link is asked who has them
	confirming       // any is asked whether the addresses of an earlier run fit the link
	informing        // any is asked, without an address
	bound
	renewing  // the server that lent it is asked
	rebinding // any server is asked
	declining // the server is told that others have the address
	releasing // the server is told that the client does not need it
)

func (s state) String() string {
	return [...]string{"stopped", "waiting for the next attempt", "waiting for an ADVERTISE", "waiting for the server to give addresses",
		"looking whether the addresses are free", "waiting for a server to confirm the earlier lease", "waiting for a server to inform", "bound", "renewing", "rebinding",
		"declining", "releasing"}[s]
}

// Maximum times between transmissions, unless a server says otherwise (RFC 8415 sections 21.24, 21.25).
const (
	defaultMaxRT = 3600 * time.Second
	leastMaxRT   = 60 * time.Second
	mostMaxRT    = 86400 * time.Second
)

// Times of a stateless lease (RFC 8415 section 21.23).
const (
	defaultRefresh = 86400 * time.Second
	leastRefresh   = 600 * time.Second
)

const (
	probeTime    = 10 * time.Second // after that whoever probes is taken to be gone
	declinePause = 10 * time.Second // at least, until the server is asked for the rest of a lease
)

// Machine is a client: what happens goes in, what has to be done comes out, with the time at which to call [Machine.Tick];
// a zero time is never. Its methods must not be called at the same time.
//
// It may have a lease in every state but stopped and releasing: what is lent is used up to its end, whatever servers say
// meanwhile.
type Machine struct {
	core  // Wake is that of the state
	p     Params
	state state
	ex    exchange

	probed Lease // granted, and looked at

	solMax, infMax time.Duration // SOL_MAX_RT, INF_MAX_RT
}

type core = client.Core[Lease]

// New returns a client that has not begun.
func New(p Params) *Machine { return fresh(p.complete()) }

func fresh(p Params) *Machine { return &Machine{p: p, solMax: defaultMaxRT, infMax: defaultMaxRT} }

// State says in words where the client is.
func (m *Machine) State() string { return m.state.String() }

// Stopped reports whether the client has not begun, has failed, was stopped or has given back its lease: nothing that happens
// changes it.
func (m *Machine) Stopped() bool { return m.state == stopped }

// Expects reports whether an answer may come.
func (m *Machine) Expects() bool { return m.ex.tries > 0 }

// Start begins. With the lease of an earlier run it asks whether the addresses fit the link (RFC 8415 section 18.2.3), unless it
// is time to prolong them: if not there is a [Lose], otherwise nothing, also if nobody answers. The link-local address must be
// usable by then.
func (m *Machine) Start(now time.Time, earlier *Lease) ([]Action, time.Time) {
	switch {
	case m.p.Stateless:
		m.Held = earlier
		m.soon(now, informing, nil)
	case earlier != nil && len(earlier.Addresses) > 0 && !earlier.Expired(now):
		m.Held = earlier
		if earlier.Renew.IsZero() || now.Before(earlier.Renew) {
			m.soon(now, confirming, earlier.without(now).addrs())
		} else {
			m.prolong(now)
		}
	default:
		m.soon(now, soliciting, nil)
	}
	if m.p.Total > 0 && m.Held == nil {
		m.GiveUp = now.Add(m.p.Total)
	}
	return m.done(now)
}

// Tick tells that the time to wake has come. A call before changes nothing.
func (m *Machine) Tick(now time.Time) ([]Action, time.Time) {
	m.expire(now)
	switch {
	case m.state != probing && !m.GiveUp.IsZero() && !now.Before(m.GiveUp):
		m.fail(cmp.Or(m.unanswered(), "it was too late to ask anybody"))
	case !m.Wake.IsZero() && !now.Before(m.Wake):
		m.tick(now)
	}
	return m.done(now)
}

// Received hands over a message from the link. What is not for this client, or not expected, changes nothing.
func (m *Machine) Received(now time.Time, r *Message) ([]Action, time.Time) {
	if m.ex.tries > 0 && r.XID == m.ex.xid && m.expects(r) {
		m.learn(r)
		m.received(now, r)
	}
	return m.done(now)
}

// Probed tells which of the addresses that were probed others have, if any; the server is told, and asked for another.
func (m *Machine) Probed(now time.Time, taken ...netip.Addr) ([]Action, time.Time) {
	if m.state == probing {
		m.looked(now, taken)
	}
	return m.done(now)
}

// Declined tells that others have addresses that the client has already. They are taken out of the lease, and the server is
// told.
func (m *Machine) Declined(now time.Time, addresses ...netip.Addr) ([]Action, time.Time) {
	if m.Held == nil {
		return m.done(now)
	}
	taken := m.Held.keep(func(a Address) bool { return slices.Contains(addresses, a.Addr) }).addrs()
	if len(taken) == 0 {
		return m.done(now)
	}
	server := m.Held.Server
	m.reduce(m.Held.keep(func(a Address) bool { return !slices.Contains(taken, a.Addr) }), inUse(taken))
	m.decline(now, server, taken)
	return m.done(now)
}

// Release gives the addresses back, which must not be used from then on. The message is repeated a few times until the server
// answers; then, or where there is nothing to give back, the client stops. Who can not wait calls [Machine.Stop].
func (m *Machine) Release(now time.Time) ([]Action, time.Time) {
	var l Lease
	switch {
	case m.state == probing: // the server has lent that by now
		l = m.probed
	case m.Held != nil:
		l = *m.Held
	}
	m.Stop()
	if len(l.Addresses) > 0 {
		m.ask(now, releasing, l.Server, l.addrs())
	}
	return m.done(now)
}

// Stop ends the client; the server is not told, and the lease is good up to its end. [Machine.Start] begins anew.
func (m *Machine) Stop() {
	m.core.Stop()
	rest := m.core
	*m = *fresh(m.p)
	m.core = rest
}

// done returns the actions, and when to wake: also at the end of an address, and of the time for the first lease.
func (m *Machine) done(now time.Time) ([]Action, time.Time) {
	var limits []time.Time
	if m.state != probing {
		limits = append(limits, m.GiveUp)
	}
	if m.Held != nil {
		limits = append(limits, m.Held.ends())
	}
	return m.Take(now, limits...)
}

// expire takes out of the lease what is not valid any more.
func (m *Machine) expire(now time.Time) {
	if m.Held == nil || len(m.Held.Addresses) == 0 {
		return
	}
	rest := m.Held.without(now)
	if len(rest.Addresses) == len(m.Held.Addresses) {
		return
	}
	m.reduce(rest, client.Because("the lease has expired", m.unanswered()))
	if m.Held == nil && (m.state == bound || m.state == renewing || m.state == rebinding || m.state == confirming) {
		m.ask(now, soliciting, nil, nil)
	}
}

// reduce leaves a rest of the lease.
func (m *Machine) reduce(rest Lease, reason string) {
	if len(rest.Addresses) == 0 {
		m.Lose(reason)
		return
	}
	m.Do(Bind{Lease: rest, Before: m.Held})
	m.Held = &rest
}

func (m *Machine) tick(now time.Time) {
	if tries := m.timing().tries; tries > 0 && m.ex.tries >= tries {
		m.over(now)
		return
	}
	switch m.state {
	case paused:
		m.again(now)
	case probing:
		m.looked(now, nil)
	case bound:
		m.prolong(now)
	case soliciting:
		if m.ex.best != nil {
			m.request(now, m.ex.best)
			return
		}
		m.send(now)
	default:
		if !m.ex.end.IsZero() && !now.Before(m.ex.end) {
			m.over(now)
			return
		}
		m.send(now)
	}
}

// again makes another attempt.
func (m *Machine) again(now time.Time) {
	if m.p.Stateless {
		m.ask(now, informing, nil, nil)
		return
	}
	m.ask(now, soliciting, nil, nil)
}

// prolong asks for what is bound again (RFC 8415 sections 18.2.4, 18.2.5).
func (m *Machine) prolong(now time.Time) {
	switch late := m.Held.Rebind; {
	case m.p.Stateless:
		m.ask(now, informing, nil, nil)
	case !late.IsZero() && !now.Before(late):
		m.ask(now, rebinding, nil, m.Held.addrs())
	default:
		m.ask(now, renewing, m.Held.Server, m.Held.addrs())
	}
}

// over ends an exchange without an answer.
func (m *Machine) over(now time.Time) {
	why := m.unanswered()
	switch m.state {
	case requesting:
		m.pause(now, why)
	case confirming: // nobody has said no
		m.Refused = why
		m.rest()
	case renewing:
		m.Refused = why
		m.ask(now, rebinding, nil, m.Held.addrs())
	case declining:
		m.declined(now)
	case releasing:
		m.Stop()
	}
}

// looked takes what was granted, but for what others have.
func (m *Machine) looked(now time.Time, found []netip.Addr) {
	isTaken := func(a Address) bool { return slices.Contains(found, a.Addr) }
	taken := m.probed.keep(isTaken).addrs()
	rest := m.probed.without(now).keep(func(a Address) bool { return !isTaken(a) })
	if len(rest.Addresses) > 0 {
		m.bind(rest)
	}
	switch {
	case len(taken) > 0:
		m.decline(now, m.probed.Server, taken)
	case len(rest.Addresses) > 0:
	case m.Held != nil:
		m.rest()
	default:
		m.pause(now, "the server gave addresses for a shorter time than it takes to see whether they are free")
	}
}

// decline tells the server that others have its addresses (RFC 8415 section 18.2.8).
func (m *Machine) decline(now time.Time, server DUID, taken []netip.Addr) {
	m.Refused = inUse(taken)
	m.ask(now, declining, server, taken)
}

func inUse(taken []netip.Addr) string { return fmt.Sprintf("in use by others: %v", taken) }

// declined goes on after DECLINE, with what is left.
func (m *Machine) declined(now time.Time) {
	if m.Held == nil {
		m.pause(now, m.Refused)
		return
	}
	m.rest()
	if soonest := now.Add(declinePause); !m.Wake.IsZero() && m.Wake.Before(soonest) {
		m.Wake = soonest
	}
}

// rest is bound, up to T1, or T2 where that never comes.
func (m *Machine) rest() {
	m.state, m.ex = bound, exchange{}
	m.Wake = client.Earliest(m.Held.Renew, m.Held.Rebind)
}

// bind takes a lease.
func (m *Machine) bind(l Lease) {
	m.Bind(l)
	m.rest()
}

// pause ends an attempt, and is the end if there is no time for another one. Pauses grow as times between transmissions do.
func (m *Machine) pause(now time.Time, reason string) {
	d := min(time.Second<<min(m.Pauses, 20), m.solMax)
	d += m.jitter(d)
	if m.TooLate(now.Add(d)) {
		m.fail(reason)
		return
	}
	m.Pauses++
	m.state, m.ex, m.Refused, m.Wake = paused, exchange{}, reason, now.Add(d)
}

func (m *Machine) fail(reason string) {
	m.Stop()
	m.Fail(reason)
}

// unanswered says what is waited for in vain, or has been.
func (m *Machine) unanswered() string {
	if m.ex.tries == 0 {
		return m.Refused
	}
	return client.Because(fmt.Sprintf("no answer to the %v in %s", m.state.kind(), client.Tries(m.ex.tries)), m.ex.odd)
}

// expects reports whether a message is an answer to the client, by a server that it has asked (RFC 8415 section 16).
func (m *Machine) expects(r *Message) bool {
	if r.Type != Reply && (r.Type != Advertise || m.state != soliciting) {
		return false
	}
	server := DUID(r.Get(OptServerID))
	return server.valid() && bytes.Equal(r.Get(OptClientID), m.p.ClientID) && (m.ex.server == nil || bytes.Equal(server, m.ex.server))
}

// learn takes over what servers want of all clients, whatever else they say.
func (m *Machine) learn(r *Message) {
	for code, limit := range map[dhcpv6.OptionCode]*time.Duration{OptSolMaxRT: &m.solMax, OptInfMaxRT: &m.infMax} {
		if d, ok := r.seconds(code); ok && d >= leastMaxRT && d <= mostMaxRT {
			*limit = d
		}
	}
}
