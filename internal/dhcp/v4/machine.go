package v4

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// state is a state of RFC 2131 section 4.4.
type state int

const (
	stopped    state = iota
	paused           // between two attempts
	selecting        // DISCOVER has been sent
	requesting       // REQUEST has been sent for an offer
	rebooting        // REQUEST has been sent for the lease of an earlier run
	probing          // checks whether another node has the address
	bound
	renewing  // asks the server of the lease
	rebinding // asks any server
)

func (s state) String() string {
	return [...]string{"stopped", "waiting for the next attempt", "waiting for an offer",
		"waiting for the server to confirm",
		"waiting for the server to confirm the earlier lease",
		"checking whether the address is free", "bound", "renewing", "rebinding"}[s]
}

const (
	maxTries     = 3 // transmissions of a message
	shortPauses  = 4 // number of pauses before they grow
	shortPause   = 2 * time.Second
	declinePause = 10 * time.Second // RFC 2131 section 3.1 (5)
	probeTime    = 10 * time.Second // time after which a probe counts as lost
	startTime    = time.Second      // clients that start together spread their requests over it
)

// The actions that both protocols have.
type (
	Action = client.Action
	Bind   = client.Bind[Lease]
	Lose   = client.Lose[Lease]
	Fail   = client.Fail[Lease]
)

// Send sends a message from UDP port 68 to port 67.
type Send struct {
	Message *Message
	// From is the client's address; invalid stands for none (0.0.0.0).
	From netip.Addr
	// To is a server, for an ordinary packet; invalid stands for all nodes on the link
	// (255.255.255.255).
	To netip.Addr
}

// Probe asks the caller to check whether another node on the link has an address (RFC 5227 section
// 2.1). The caller passes the result to [Machine.Probed]; without that call, the client considers
// the address free after 10 s.
type Probe struct{ Address netip.Addr }

// Machine is a client. Its methods process events, and return the actions for the caller and the
// time at which to call [Machine.Tick]; a zero time stands for never. The methods must not run
// concurrently.
//
// The client holds a lease when it is rebooting, bound, renewing or rebinding, and while it probes
// a second address.
type Machine struct {
	core
	p     Params
	state state

	// The exchange with servers.
	xid     uint32
	began   time.Time
	secs    uint16    // as last sent
	asked   time.Time // the last message
	tries   int       // of that message
	offered struct{ address, server netip.Addr }
	odd     string // the error in a message that the client refused
	probed  Lease  // granted, and being probed
}

type core = client.Core[Lease]

// New returns a client that has not started.
func New(p Params) *Machine { return &Machine{p: p.complete()} }

// State describes the state in words. A stopped client ignores events.
func (m *Machine) State() string { return m.state.String() }

// Expects reports whether the client waits for an answer.
func (m *Machine) Expects() bool {
	switch m.state {
	case selecting, requesting, rebooting, renewing, rebinding:
		return true
	}
	return false
}

// Start starts the client. If it has the lease of an earlier run, it asks servers to confirm the
// lease (INIT-REBOOT, RFC 2131 section 3.2): the server confirms it ([Bind]) or refuses it
// ([Lose]). Without an answer the client keeps the lease until it expires.
func (m *Machine) Start(now time.Time, earlier *Lease) ([]Action, time.Time) {
	if earlier != nil && !earlier.Expired(now) {
		m.Held = earlier
		m.enter(now, rebooting)
		m.Wake = now.Add(m.startDelay(now))
		return m.done(now)
	}
	if m.p.Total > 0 {
		m.GiveUp = now.Add(m.p.Total)
	}
	m.ask(now, selecting)
	return m.done(now)
}

// Tick processes the wake-up time. A call before that time has no effect.
func (m *Machine) Tick(now time.Time) ([]Action, time.Time) {
	if !m.Wake.IsZero() && !now.Before(m.Wake) {
		m.tick(now)
	}
	return m.done(now)
}

// Received processes a message from the link. It ignores unexpected messages and messages for other
// clients.
func (m *Machine) Received(now time.Time, r *Message) ([]Action, time.Time) {
	if r.Reply && r.XID == m.xid && bytes.Equal(r.MAC, m.p.MAC) {
		m.received(now, r)
	}
	return m.done(now)
}

// Probed processes the end of a probe. by is the node that has the address, or nil.
func (m *Machine) Probed(
	now time.Time, address netip.Addr, by net.HardwareAddr,
) ([]Action, time.Time) {
	switch {
	case m.state != probing || m.probed.Address.Addr() != address:
	case by == nil:
		m.bind(now, m.probed)
	default:
		m.decline(now, m.probed, by)
	}
	return m.done(now)
}

// Release releases the lease, and stops the client.
func (m *Machine) Release() []Action {
	l := m.Held
	if m.state == probing { // the server has already granted it
		l = &m.probed
	}
	if l != nil && l.Server.IsValid() {
		msg := m.farewell(Release, l.Server)
		msg.Client = l.Address.Addr()
		m.Do(Send{Message: msg, From: msg.Client, To: l.Server})
	}
	m.Stop()
	actions, _ := m.Take(time.Time{})
	return actions
}

// Stop stops the client without a message to the server. The lease remains valid until it expires.
// [Machine.Start] starts the client again.
func (m *Machine) Stop() {
	m.core.Stop()
	*m = Machine{core: m.core, p: m.p}
}

// done returns the actions and the wake-up time, which is at the latest the end of the lease or of
// the limit for the first lease.
func (m *Machine) done(now time.Time) (actions []Action, wake time.Time) {
	var end, late time.Time
	if m.Held != nil {
		end = m.Held.Expires
	}
	if m.state != probing {
		late = m.GiveUp
	}
	actions, m.Wake = m.Take(now, end, late)
	return actions, m.Wake
}

// ask enters a state, and sends its message.
func (m *Machine) ask(now time.Time, s state) {
	m.enter(now, s)
	m.send(now)
}

// startDelay prevents the clients of a daemon from sending their requests at the same time. A
// client with a renewal due does not wait.
func (m *Machine) startDelay(now time.Time) time.Duration {
	most := startTime
	if t1 := m.Held.Renew; !t1.IsZero() {
		most = min(most, t1.Sub(now)/10)
	}
	if most <= 0 {
		return 0
	}
	return time.Duration(m.p.Rand() % uint64(most))
}

// enter enters a state with a new exchange.
func (m *Machine) enter(now time.Time, s state) {
	m.state, m.began, m.tries, m.odd = s, now, 0, ""
	m.xid = uint32(m.p.Rand())
}

func (m *Machine) tick(now time.Time) {
	switch {
	case m.Held != nil && m.Held.Expired(now):
		m.Lose(client.Because("the lease has expired", m.unanswered()))
		m.ask(now, selecting)
		return
	case m.state != probing && !m.GiveUp.IsZero() && !now.Before(m.GiveUp):
		m.fail(m.unanswered())
		return
	}
	switch m.state {
	case paused:
		m.ask(now, selecting)
	case selecting, requesting:
		if m.tries < maxTries {
			m.send(now)
			return
		}
		m.pause(now, m.growing(), m.unanswered())
	case rebooting:
		if m.tries < maxTries-1 {
			m.send(now)
			return
		}
		m.Refused = m.unanswered()
		m.rest()
	case probing:
		m.bind(now, m.probed)
	case bound, renewing, rebinding:
		m.prolong(now)
	}
}

// prolong asks the server to renew the lease, or any server if T2 has passed (RFC 2131 section
// 4.4.5).
func (m *Machine) prolong(now time.Time) {
	m.Refused = m.unanswered()
	switch {
	case m.state != rebinding && !now.Before(m.Held.Rebind):
		m.ask(now, rebinding)
	case m.state == bound:
		m.ask(now, renewing)
	default:
		m.send(now)
	}
}

func (m *Machine) received(now time.Time, r *Message) {
	switch kind := r.Type(); {
	case m.state == selecting:
		if kind == Offer {
			m.consider(now, r)
		}
	case !m.awaits(r):
	case kind == ACK:
		m.acknowledged(now, r)
	case kind == NAK:
		reason := client.Because("the server refused", r.Text(OptMessage))
		if m.Held == nil {
			m.pause(now, m.growing(), reason)
			return
		}
		m.Lose(reason)
		m.ask(now, selecting)
	}
}

// awaits reports whether an answer comes from a server that got a REQUEST, or does not name its
// server.
func (m *Machine) awaits(r *Message) bool {
	switch m.state {
	case requesting, renewing:
		whom := m.asksWhom()
		server, ok := r.Addr(OptServerID)
		return !ok || !whom.IsValid() || server == whom
	case rebooting, rebinding:
		return true
	}
	return false
}

// consider accepts the first offer that can become a lease. An offer may omit the mask, which the
// ACK then contains.
func (m *Machine) consider(now time.Time, r *Message) {
	server, _ := r.Addr(OptServerID)
	switch {
	case !usable(server):
		m.odd = "an offer does not name its server"
		return
	case r.Get(OptSubnetMask) != nil:
		if _, err := leaseOf(r, now); err != nil {
			m.odd = err.Error()
			return
		}
	case !usable(r.Your):
		m.odd = fmt.Sprintf("the server offered the address %v", r.Your)
		return
	}
	m.offered.address, m.offered.server = r.Your, server
	m.state, m.tries, m.odd = requesting, 0, ""
	m.send(now)
}

func (m *Machine) acknowledged(now time.Time, r *Message) {
	lease, err := leaseOf(r, m.asked)
	switch {
	case err != nil:
	case m.state == requesting && r.Your != m.offered.address:
		err = fmt.Errorf("the server offered %s and gave %s", m.offered.address, r.Your)
	case lease.Expired(now):
		err = fmt.Errorf("the server gave %s for a time that has passed", lease.Address)
	}
	if err != nil && m.Held == nil {
		m.pause(now, m.growing(), err.Error())
		return
	}
	if err != nil { // the client keeps its lease until it expires, and tries to renew it
		m.odd = err.Error()
		return
	}
	if !lease.Server.IsValid() {
		lease.Server = m.asksWhom()
	}
	if !lease.Server.IsValid() && m.Held != nil {
		lease.Server = m.Held.Server
	}
	random := m.p.Rand() // the same for both: T2 stays after T1
	lease.Renew, lease.Rebind = client.Earlier(lease.Renew, m.asked, random),
		client.Earlier(lease.Rebind, m.asked, random)
	if m.p.Probe && (m.Held == nil || m.Held.Address.Addr() != r.Your) {
		m.state, m.probed, m.Wake = probing, lease, now.Add(probeTime)
		m.Do(Probe{r.Your})
		return
	}
	m.bind(now, lease)
}

// bind accepts a lease.
func (m *Machine) bind(now time.Time, l Lease) {
	if l.Expired(now) { // it expired during the probe
		if m.Held != nil {
			m.Lose("the lease has expired")
		}
		m.pause(now, m.growing(),
			fmt.Sprintf("the server gave %s for a shorter time than the probe takes", l.Address))
		return
	}
	m.Bind(l)
	m.rest()
}

// rest waits in the state bound until T1.
func (m *Machine) rest() { m.state, m.Wake = bound, m.Held.Renew }

// decline reports to the server that another node has the address. The client also gives up its
// current lease, because the server has no other on record.
func (m *Machine) decline(now time.Time, l Lease, by net.HardwareAddr) {
	reason := fmt.Sprintf("%s is in use by %s", l.Address.Addr(), by)
	if m.Held != nil {
		m.Lose(reason)
	}
	msg := m.farewell(Decline, l.Server)
	msg.Set(OptRequestedIP, l.Address.Addr().AsSlice())
	m.Do(Send{Message: msg})
	m.pause(now, declinePause, reason)
}

// pause ends an attempt, or the client if there is no time for another one.
func (m *Machine) pause(now time.Time, d time.Duration, reason string) {
	if m.TooLate(now.Add(d)) {
		m.fail(reason)
		return
	}
	m.Pauses++
	m.state, m.Refused, m.Wake = paused, reason, now.Add(d)
}

// growing returns the time until the next attempt: 2 s for the first attempts, then doubled each
// time, with a jitter of 1 s.
func (m *Machine) growing() time.Duration {
	d := shortPause
	for i := shortPauses; i <= m.Pauses && d < m.p.Pause; i++ {
		d *= 2
	}
	jitter := time.Duration(m.p.Rand()%uint64(2*time.Second)) - time.Second
	return min(d, max(m.p.Pause, shortPause)) + jitter
}

func (m *Machine) fail(reason string) {
	m.Stop()
	m.Fail(reason)
}

// unanswered describes the missing answer.
func (m *Machine) unanswered() string {
	switch m.state {
	case paused, probing, bound:
		return m.Refused
	case rebooting:
		if m.tries == 0 {
			return m.Refused
		}
	case selecting:
		return client.Because("no OFFER in "+client.Tries(m.tries), m.odd)
	}
	return client.Because("no answer to the REQUEST in "+client.Tries(m.tries), m.odd)
}
