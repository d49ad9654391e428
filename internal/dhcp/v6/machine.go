package v6

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// state is a state of RFC 8415 section 18.2.
type state int

const (
	stopped    state = iota
	paused           // between two attempts
	soliciting       // looks for servers
	requesting       // asks one of them for addresses
	probing          // looks for other nodes with them
	confirming       // asks any whether the addresses of an earlier run fit the link
	informing        // asks any for settings
	bound
	renewing  // asks the server of the lease
	rebinding // asks any server
	declining // reports addresses that other nodes have
	releasing // gives up the lease
)

func (s state) String() string {
	return [...]string{"stopped", "waiting for the next attempt", "waiting for an ADVERTISE", "waiting for the server to give addresses",
		"looking whether the addresses are free", "waiting for a server to confirm the earlier lease", "waiting for a server to inform", "bound", "renewing", "rebinding",
		"declining", "releasing"}[s]
}

// Maximum times between transmissions, unless a server says otherwise (RFC 8415 sections 21.24,
// 21.25).
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
	probeTime    = 10 * time.Second // after that a probe counts as lost
	declinePause = 10 * time.Second // at least, until the server is asked for the rest of a lease
)

// The actions that both protocols have.
type (
	Action = client.Action
	Bind   = client.Bind[Lease]
	Lose   = client.Lose[Lease]
	Fail   = client.Fail[Lease]
)

// Send sends a message, from the link-local address and UDP port 546 to ff02::1:2 port 547 (RFC
// 8415 section 7.1).
type Send struct{ Message *Message }

// Probe asks the link for the owners of addresses (duplicate address detection, RFC 4862 section
// 5.4). The caller passes the answer to [Machine.Probed]; the client takes the addresses as free if
// there is no call within 10 s.
type Probe struct{ Addresses []netip.Addr }

// Params are the identity and the wishes of a client. A field that is zero has the default that its
// comment names.
type Params struct {
	ClientID DUID                // required
	IAID     uint32              // which of the client's interfaces this is (RFC 8415 section 12)
	Request  []dhcpv6.OptionCode // codes of requested options; the protocol adds its own

	Stateless bool          // no address, only settings
	Probe     bool          // the client probes an address before it takes it
	Total     time.Duration // for getting the first lease; 0: for ever

	Rand func() uint64 // the source of transaction numbers and of jitter, [rand.Uint64]
}

// Machine is a client. Its methods take events, and return the actions for the caller and the time
// at which to call [Machine.Tick]; a zero time is never. They must not run at the same time.
//
// The client may have a lease in every state but stopped and releasing: it uses its addresses until
// their end, in any state of an exchange.
type Machine struct {
	core  // Wake is the time of the state
	p     Params
	state state
	ex    exchange

	probed Lease // granted, and looked at

	solMax, infMax time.Duration // SOL_MAX_RT, INF_MAX_RT
}

type core = client.Core[Lease]

// New returns a client that has not started.
func New(p Params) *Machine {
	if p.Rand == nil {
		p.Rand = rand.Uint64
	}
	return fresh(p)
}

func fresh(p Params) *Machine { return &Machine{p: p, solMax: defaultMaxRT, infMax: defaultMaxRT} }

// State returns the state in words.
func (m *Machine) State() string { return m.state.String() }

// Stopped reports whether the client has not started, has failed, was stopped or has released its
// lease: it ignores events.
func (m *Machine) Stopped() bool { return m.state == stopped }

// Expects reports whether the client waits for an answer.
func (m *Machine) Expects() bool { return m.ex.tries > 0 }

// Start starts the client. With the lease of an earlier run it asks whether the addresses fit the
// link (RFC 8415 section 18.2.3), unless it is time to renew them: a server that refuses causes a
// [Lose], no answer has no effect. The link-local address must be usable by then.
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

// Tick is the event of the time to wake. An earlier call has no effect.
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

// Received is the event of a message from the link. A message for another client, or an unexpected
// one, has no effect.
func (m *Machine) Received(now time.Time, r *Message) ([]Action, time.Time) {
	if m.ex.tries > 0 && r.XID == m.ex.xid && m.expects(r) {
		m.learn(r)
		m.received(now, r)
	}
	return m.done(now)
}

// Probed is the event of a finished probe; taken are the addresses that other nodes have. The
// client declines them and asks for others.
func (m *Machine) Probed(now time.Time, used ...netip.Addr) ([]Action, time.Time) {
	if m.state == probing {
		m.looked(now, used)
	}
	return m.done(now)
}

// Declined is the event of other nodes that have addresses of the lease. The client removes them
// from the lease and declines them.
func (m *Machine) Declined(now time.Time, addresses ...netip.Addr) ([]Action, time.Time) {
	if m.Held == nil {
		return m.done(now)
	}
	used := m.Held.keep(func(a Address) bool { return slices.Contains(addresses, a.Addr) }).addrs()
	if len(used) == 0 {
		return m.done(now)
	}
	server := m.Held.Server
	m.reduce(m.Held.keep(func(a Address) bool { return !slices.Contains(used, a.Addr) }), inUse(used))
	m.decline(now, server, used)
	return m.done(now)
}

// Release releases the addresses, which the caller must no longer use. The client repeats the
// message a few times until the server answers, and stops. [Machine.Stop] does not wait.
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

// Stop stops the client without a message to the server; the lease is valid until its end.
// [Machine.Start] starts again.
func (m *Machine) Stop() {
	m.core.Stop()
	rest := m.core
	*m = *fresh(m.p)
	m.core = rest
}

// done returns the actions, and when to wake: also at the end of an address, and of the time for
// the first lease.
func (m *Machine) done(now time.Time) ([]Action, time.Time) {
	var end, late time.Time
	if m.Held != nil {
		end = m.Held.ends()
	}
	if m.state != probing {
		late = m.GiveUp
	}
	return m.Take(now, end, late)
}

// expire removes addresses that have ended from the lease.
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

// reduce keeps a part of the lease.
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
		m.ask(now, m.first(), nil, nil)
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

// first returns the state of a client without a lease that asks for one.
func (m *Machine) first() state {
	if m.p.Stateless {
		return informing
	}
	return soliciting
}

// prolong asks a server to renew the lease (RFC 8415 sections 18.2.4, 18.2.5).
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
	case confirming: // no server has refused
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

// looked takes the granted addresses that no other node has.
func (m *Machine) looked(now time.Time, found []netip.Addr) {
	isUsed := func(a Address) bool { return slices.Contains(found, a.Addr) }
	used := m.probed.keep(isUsed).addrs()
	rest := m.probed.without(now).keep(func(a Address) bool { return !isUsed(a) })
	if len(rest.Addresses) > 0 {
		m.bind(rest)
	}
	switch {
	case len(used) > 0:
		m.decline(now, m.probed.Server, used)
	case len(rest.Addresses) > 0:
	case m.Held != nil:
		m.rest()
	default:
		m.pause(now, "the server gave addresses for a shorter time than it takes to see whether they are free")
	}
}

// decline reports addresses to the server that other nodes have (RFC 8415 section 18.2.8).
func (m *Machine) decline(now time.Time, server DUID, used []netip.Addr) {
	m.Refused = inUse(used)
	m.ask(now, declining, server, used)
}

func inUse(used []netip.Addr) string { return fmt.Sprintf("in use by others: %v", used) }

// declined continues after DECLINE, with the rest of the lease.
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

// rest waits in the state bound until T1, or T2 if there is no T1.
func (m *Machine) rest() {
	m.state, m.ex = bound, exchange{}
	m.Wake = client.Earliest(m.Held.Renew, m.Held.Rebind)
}

// bind takes a lease.
func (m *Machine) bind(l Lease) {
	m.Bind(l)
	m.rest()
}

// pause ends an attempt, or the client if there is no time for another one. Pauses grow as times
// between transmissions do.
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

// unanswered returns the missing answer in words.
func (m *Machine) unanswered() string {
	if m.ex.tries == 0 {
		return m.Refused
	}
	return client.Because(fmt.Sprintf("no answer to the %v in %s", m.state.kind(), client.Tries(m.ex.tries)), m.ex.odd)
}

// expects reports whether a message answers the client, by a server that it has asked (RFC 8415
// section 16).
func (m *Machine) expects(r *Message) bool {
	if r.Type != Reply && (r.Type != Advertise || m.state != soliciting) {
		return false
	}
	server := DUID(r.Get(dhcpv6.OptionServerID))
	return server.valid() && bytes.Equal(r.Get(dhcpv6.OptionClientID), m.p.ClientID) && (m.ex.server == nil || bytes.Equal(server, m.ex.server))
}

// learn takes the settings that servers have for all clients.
func (m *Machine) learn(r *Message) {
	for code, limit := range map[dhcpv6.OptionCode]*time.Duration{dhcpv6.OptionSolMaxRT: &m.solMax, dhcpv6.OptionInfMaxRT: &m.infMax} {
		if d, ok := r.seconds(code); ok && d >= leastMaxRT && d <= mostMaxRT {
			*limit = d
		}
	}
}
