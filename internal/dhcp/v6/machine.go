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
	requesting       // asks a server for addresses
	probing          // checks whether other nodes have them
	confirming       // asks whether the addresses of an earlier run fit the link
	informing        // asks any server for settings
	bound
	renewing  // asks the server of the lease
	rebinding // asks any server
	declining // reports addresses that other nodes have
	releasing // gives up the lease
)

func (s state) String() string {
	return [...]string{"stopped", "waiting for the next attempt", "waiting for an ADVERTISE",
		"waiting for the server to grant addresses", "checking whether the addresses are free",
		"waiting for a server to confirm the earlier lease", "waiting for settings from a server",
		"bound", "renewing", "rebinding",
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
	probeTime = 10 * time.Second // time after which a probe counts as lost
	// Minimum time until the client asks the server for the rest of a lease.
	declinePause = 10 * time.Second
)

// The actions that both protocols have.
type (
	Action = client.Action
	Bind   = client.Bind[Lease]
	Lose   = client.Lose[Lease]
	Fail   = client.Fail[Lease]
)

// Send sends a message from the link-local address and UDP port 546 to ff02::1:2 port 547 (RFC 8415
// section 7.1).
type Send struct{ Message *Message }

// Probe asks the caller to check whether other nodes on the link have the addresses (duplicate
// address detection, RFC 4862 section 5.4). The caller passes the result to [Machine.Probed];
// without that call, the client considers the addresses free after 10 s.
type Probe struct{ Addresses []netip.Addr }

// Params are the identity and the options of a client. The comments of the fields name their
// defaults, which zero stands for.
type Params struct {
	ClientID DUID                // required
	IAID     uint32              // identifies the client's interface (RFC 8415 section 12)
	Request  []dhcpv6.OptionCode // codes of requested options; the protocol adds its own

	Stateless bool          // request settings only, no addresses
	Probe     bool          // probe an address before using it
	Total     time.Duration // limit for getting the first lease; 0 for none

	Rand func() uint64 // source of transaction numbers and jitter, by default [rand.Uint64]
}

// Machine is a client. Its methods process events, and return the actions for the caller and the
// time at which to call [Machine.Tick]; a zero time stands for never. The methods must not run
// concurrently.
//
// The client can hold a lease in every state except stopped and releasing. It uses the addresses of
// the lease until they expire, in every state of an exchange.
type Machine struct {
	core  // Wake is the time of the state
	p     Params
	state state
	ex    exchange

	probed Lease // granted, and being probed

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

// State describes the state in words.
func (m *Machine) State() string { return m.state.String() }

// Stopped reports whether the client has not started, has failed, was stopped or has released its
// lease. A stopped client ignores events.
func (m *Machine) Stopped() bool { return m.state == stopped }

// Expects reports whether the client waits for an answer.
func (m *Machine) Expects() bool { return m.ex.tries > 0 }

// Start starts the client. If it has the lease of an earlier run, it asks whether the addresses fit
// the link (RFC 8415 section 18.2.3), unless a renewal is due. If a server refuses, the client
// returns a [Lose]; no answer has no effect. The link-local address must already be usable.
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

// Tick processes the wake-up time. A call before that time has no effect.
func (m *Machine) Tick(now time.Time) ([]Action, time.Time) {
	m.expire(now)
	switch {
	case m.state != probing && !m.GiveUp.IsZero() && !now.Before(m.GiveUp):
		m.fail(cmp.Or(m.unanswered(), "there was no time left to ask a server"))
	case !m.Wake.IsZero() && !now.Before(m.Wake):
		m.tick(now)
	}
	return m.done(now)
}

// Received processes a message from the link. It ignores unexpected messages and messages for other
// clients.
func (m *Machine) Received(now time.Time, r *Message) ([]Action, time.Time) {
	if m.ex.tries > 0 && r.XID == m.ex.xid && m.expects(r) {
		m.learn(r)
		m.received(now, r)
	}
	return m.done(now)
}

// Probed processes the end of a probe. taken are the addresses that other nodes have. The client
// declines them and asks for others.
func (m *Machine) Probed(now time.Time, used ...netip.Addr) ([]Action, time.Time) {
	if m.state == probing {
		m.looked(now, used)
	}
	return m.done(now)
}

// Declined processes the detection of other nodes that have addresses of the lease. The client
// removes the addresses from the lease and declines them.
func (m *Machine) Declined(now time.Time, addresses ...netip.Addr) ([]Action, time.Time) {
	if m.Held == nil {
		return m.done(now)
	}
	used := m.Held.keep(func(a Address) bool { return slices.Contains(addresses, a.Addr) }).addrs()
	if len(used) == 0 {
		return m.done(now)
	}
	server := m.Held.Server
	m.reduce(m.Held.keep(func(a Address) bool { return !slices.Contains(used, a.Addr) }),
		inUse(used))
	m.decline(now, server, used)
	return m.done(now)
}

// Release releases the addresses, which the caller must no longer use. The client repeats the
// message a few times until the server answers, and stops. [Machine.Stop] stops it immediately.
func (m *Machine) Release(now time.Time) ([]Action, time.Time) {
	var l Lease
	switch {
	case m.state == probing: // the server has already granted it
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

// Stop stops the client without a message to the server. The lease remains valid until it expires.
// [Machine.Start] starts the client again.
func (m *Machine) Stop() {
	m.core.Stop()
	rest := m.core
	*m = *fresh(m.p)
	m.core = rest
}

// done returns the actions and the wake-up time, which is at the latest the expiry of an address or
// the limit for the first lease.
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

// expire removes expired addresses from the lease.
func (m *Machine) expire(now time.Time) {
	if m.Held == nil || len(m.Held.Addresses) == 0 {
		return
	}
	rest := m.Held.without(now)
	if len(rest.Addresses) == len(m.Held.Addresses) {
		return
	}
	m.reduce(rest, client.Because("the lease has expired", m.unanswered()))
	if m.Held == nil && (m.state == bound || m.state == renewing || m.state == rebinding ||
		m.state == confirming) {
		m.ask(now, soliciting, nil, nil)
	}
}

// reduce shrinks the lease to the part that remains.
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

// first returns the initial state of a client without a lease.
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

// looked accepts the granted addresses that no other node has.
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
		m.pause(now, "the server gave addresses for a shorter time than the probe takes")
	}
}

// decline reports addresses that other nodes have to the server (RFC 8415 section 18.2.8).
func (m *Machine) decline(now time.Time, server DUID, used []netip.Addr) {
	m.Refused = inUse(used)
	m.ask(now, declining, server, used)
}

func inUse(used []netip.Addr) string { return fmt.Sprintf("in use by other nodes: %v", used) }

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

// rest waits in the state bound until T1, or until T2 if there is no T1.
func (m *Machine) rest() {
	m.state, m.ex = bound, exchange{}
	m.Wake = client.Earliest(m.Held.Renew, m.Held.Rebind)
}

// bind accepts a lease.
func (m *Machine) bind(l Lease) {
	m.Bind(l)
	m.rest()
}

// pause ends an attempt, or the client if there is no time for another one. Pauses grow like the
// times between transmissions.
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

// unanswered describes the missing answer.
func (m *Machine) unanswered() string {
	if m.ex.tries == 0 {
		return m.Refused
	}
	return client.Because(fmt.Sprintf("no answer to the %v in %s", m.state.kind(),
		client.Tries(m.ex.tries)), m.ex.odd)
}

// expects reports whether a message is an answer to the client from a server that it has asked (RFC
// 8415 section 16).
func (m *Machine) expects(r *Message) bool {
	if r.Type != Reply && (r.Type != Advertise || m.state != soliciting) {
		return false
	}
	server := DUID(r.Get(dhcpv6.OptionServerID))
	return server.valid() && bytes.Equal(r.Get(dhcpv6.OptionClientID), m.p.ClientID) &&
		(m.ex.server == nil || bytes.Equal(server, m.ex.server))
}

// learn applies the settings that servers send to all clients.
func (m *Machine) learn(r *Message) {
	for code, limit := range map[dhcpv6.OptionCode]*time.Duration{dhcpv6.OptionSolMaxRT: &m.solMax,
		dhcpv6.OptionInfMaxRT: &m.infMax} {
		if d, ok := r.seconds(code); ok && d >= leastMaxRT && d <= mostMaxRT {
			*limit = d
		}
	}
}
