package v6

import (
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

func (m *Machine) received(now time.Time, r *Message) {
	switch m.state {
	case soliciting:
		if r.Type == Advertise {
			m.advertised(now, r)
		}
	case requesting, renewing, rebinding:
		m.replied(now, r)
	case confirming:
		m.confirmed(now, r)
	case informing:
		m.informed(now, r)
	case declining:
		m.declined(now)
	case releasing:
		m.Stop()
	}
}

// advertised selects the offer of the server with the highest preference in the first second, and
// after that the first offer (RFC 8415 sections 18.2.1, 18.2.9).
func (m *Machine) advertised(now time.Time, r *Message) {
	if s := statusOf(r.Options); s.code != iana.StatusSuccess {
		m.ex.odd = s.String()
		return
	}
	if a, _ := r.ia(m.p.IAID); !a.good() {
		m.ex.odd = "a server has no address for the client"
		if a.status.code != iana.StatusSuccess {
			m.ex.odd = a.status.String()
		}
		return
	}
	if m.ex.best == nil || preference(r) > preference(m.ex.best) {
		m.ex.best = r
	}
	if m.ex.tries > 1 || preference(r) == 255 {
		m.request(now, m.ex.best)
	}
}

// preference returns the preference, 0 to 255 (RFC 8415 section 21.8).
func preference(m *Message) byte {
	if v := m.Get(dhcpv6.OptionPreference); len(v) == 1 {
		return v[0]
	}
	return 0
}

// request asks the server of an ADVERTISE for the addresses that it has offered (RFC 8415 section
// 18.2.2).
func (m *Machine) request(now time.Time, offer *Message) {
	a, _ := offer.ia(m.p.IAID)
	m.ask(now, requesting, DUID(offer.Get(dhcpv6.OptionServerID)),
		leaseOf(offer, a, now, nil).addrs())
}

// replied processes the answer to a request, or to renewing and rebinding (RFC 8415 section
// 18.2.10.1).
func (m *Machine) replied(now time.Time, r *Message) {
	a, ok := r.ia(m.p.IAID)
	overall := statusOf(r.Options)
	prolongs := m.state == renewing || m.state == rebinding
	const forgotten = iana.StatusNoBinding // the server may assign the addresses again
	switch {
	case overall.code != iana.StatusSuccess && !(prolongs && overall.code == forgotten):
		m.denied(now, overall)
		return
	case prolongs && (overall.code == forgotten || ok && a.status.code == forgotten):
		m.ask(now, requesting, DUID(r.Get(dhcpv6.OptionServerID)), m.Held.addrs())
		return
	case !ok:
		m.ex.odd = "the REPLY does not mention the client's addresses"
		return
	case a.status.code != iana.StatusSuccess:
		m.denied(now, a.status)
		return
	}
	switch {
	case a.good() && prolongs:
		m.granted(now, leaseOf(r, a, now, m.Held.without(now).Addresses))
	case a.good():
		m.granted(now, leaseOf(r, a, now, nil))
	case prolongs:
		m.withdrawn(now, a)
	default:
		m.deny(now, "the server gave no usable address")
	}
}

// granted accepts the lease of a server. It probes addresses that the client did not have before
// (RFC 8415 section 18.2.10.1).
func (m *Machine) granted(now time.Time, l Lease) {
	random := m.p.Rand() // the same for both, so that T2 stays after T1
	l.Renew, l.Rebind = client.Earlier(l.Renew, now, random), client.Earlier(l.Rebind, now, random)
	news := l.keep(func(a Address) bool {
		return m.Held == nil || !slices.Contains(m.Held.addrs(), a.Addr)
	})
	if !m.p.Probe || len(news.Addresses) == 0 {
		m.bind(l)
		return
	}
	m.state, m.ex, m.probed, m.Wake = probing, exchange{}, l, now.Add(probeTime)
	m.Do(Probe{news.addrs()})
}

// withdrawn processes a REPLY that renews nothing: the client loses the addresses with a valid time
// of 0, and continues to ask for the others.
func (m *Machine) withdrawn(now time.Time, a ia) {
	rest := m.Held.keep(func(has Address) bool {
		return !slices.ContainsFunc(a.addresses,
			func(given iaAddress) bool { return given.addr == has.Addr })
	})
	m.ex.odd, m.ex.hints = "the server renews no address", rest.addrs()
	if len(rest.Addresses) < len(m.Held.Addresses) {
		m.reduce(rest, "the server has withdrawn the addresses")
	}
	if m.Held == nil {
		m.ask(now, soliciting, nil, nil)
	}
}

// denied ends a REQUEST unless the client may repeat it. In other states the client continues,
// because another server may answer differently.
func (m *Machine) denied(now time.Time, s status) {
	if s.code == iana.StatusUnspecFail || s.code == iana.StatusUseMulticast {
		m.ex.odd = s.String()
		return
	}
	m.deny(now, s.String())
}

func (m *Machine) deny(now time.Time, reason string) {
	if m.state == requesting {
		m.pause(now, reason)
		return
	}
	m.ex.odd = reason
}

// confirmed processes the answer to CONFIRM: whether the addresses fit the link (RFC 8415 section
// 18.2.10.2).
func (m *Machine) confirmed(now time.Time, r *Message) {
	switch s := statusOf(r.Options); s.code {
	case iana.StatusSuccess:
		m.rest()
	case iana.StatusNotOnLink:
		m.Lose(s.String())
		m.ask(now, soliciting, nil, nil)
	default:
		m.ex.odd = s.String()
	}
}

// informed processes the settings of a stateless reply (RFC 8415 section 18.2.10.4).
func (m *Machine) informed(now time.Time, r *Message) {
	if s := statusOf(r.Options); s.code != iana.StatusSuccess {
		m.ex.odd = s.String()
		return
	}
	l := settingsOf(r)
	refresh, ok := r.seconds(dhcpv6.OptionInformationRefreshTime)
	if !ok {
		refresh = defaultRefresh
	}
	l.Renew = client.Earlier(in(now, max(refresh, leastRefresh)), now.Add(leastRefresh), m.p.Rand())
	m.bind(l)
}
