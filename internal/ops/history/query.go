package history

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
)

// Kind is what a [Subject] names.
type Kind string

// The kinds of subjects.
const (
	Address Kind = "address"
	MAC     Kind = "MAC address"
	Port    Kind = "port"
	Name    Kind = "container or interface"
	Host    Kind = "host"
)

// Subject is an address, a MAC address, a published port, an interface, a container or the host.
type Subject struct {
	Kind Kind
	Text string

	addr     netip.Addr
	mac      string
	port     int
	protocol string // "" is any
}

// ParseSubject reads a subject: an IP address, a MAC address, a port as 8080 or 8080/udp, or a name.
// An empty text is the host, which has all attachments.
func ParseSubject(text string) Subject {
	s := Subject{Kind: Name, Text: text}
	if text == "" {
		s.Kind = Host
		return s
	}
	if a, err := netip.ParseAddr(text); err == nil {
		s.Kind, s.addr = Address, a.Unmap().WithZone("")
		return s
	}
	if m, err := net.ParseMAC(text); err == nil {
		s.Kind, s.mac = MAC, m.String()
		return s
	}
	number, protocol, _ := strings.Cut(text, "/")
	if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 &&
		slices.Contains([]string{"", "tcp", "udp", "sctp"}, strings.ToLower(protocol)) {
		s.Kind, s.port, s.protocol = Port, int(n), strings.ToLower(protocol)
	}
	return s
}

// Match reports whether an interval has the subject. A number is also the name of a container.
func (s Subject) Match(i *Interval) bool {
	if i.Container == s.Text || i.Attachment().String() == s.Text {
		return true
	}
	switch s.Kind {
	case Host:
		return true
	case Address:
		return i.has(s.addr)
	case Port:
		return slices.ContainsFunc(i.Ports, func(p journal.Port) bool {
			return p.HostPort == s.port &&
				(s.protocol == "" || strings.EqualFold(p.Protocol, s.protocol))
		})
	case MAC:
		return slices.ContainsFunc(i.Interfaces, func(x journal.Interface) bool {
			return x.Container && strings.EqualFold(x.MAC, s.mac)
		})
	}
	return i.IfName == s.Text || slices.ContainsFunc(i.Interfaces,
		func(x journal.Interface) bool { return x.Name == s.Text })
}

// Answer is the history of a subject.
type Answer struct {
	Version   int        `json:"version"` // of this format: 1
	Subject   string     `json:"subject,omitzero"`
	Kind      Kind       `json:"kind"`
	Now       time.Time  `json:"now"`
	At        time.Time  `json:"at,omitzero"`
	Since     time.Time  `json:"since,omitzero"`
	Begins    time.Time  `json:"journalBegins,omitzero"`
	Intervals []Interval `json:"intervals"`
	Before    *Interval  `json:"before,omitzero"` // the last one that ended before At
	After     *Interval  `json:"after,omitzero"`  // the first one that began after At
}

// Query asks for the history of a subject.
type Query struct {
	Subject string    // see [ParseSubject]
	At      time.Time // zero: all intervals
	Since   time.Time // leaves out intervals that ended earlier
}

// Ask selects the intervals of the subject of a query, which may also be a unique prefix of a
// container ID. The error is a [*logs.AmbiguousError].
func Ask(all []Interval, q Query, begins time.Time, now Now) (*Answer, error) {
	s := ParseSubject(q.Subject)
	a := &Answer{Version: 1, Subject: q.Subject, Kind: s.Kind, Now: now.Time, At: q.At,
		Since: q.Since, Begins: begins, Intervals: []Interval{}}
	found, err := s.find(all)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		switch {
		case !i.To.IsZero() && i.To.Before(q.Since):
		case q.At.IsZero() || i.Covers(q.At):
			a.Intervals = append(a.Intervals, i)
		case i.From.After(q.At):
			if a.After == nil || i.From.Before(a.After.From) {
				a.After = &i
			}
		case a.Before == nil || !i.To.Before(a.Before.To):
			a.Before = &i
		}
	}
	return a, nil
}

// find returns the intervals of a subject.
func (s Subject) find(all []Interval) (found []Interval, err error) {
	prefixed := map[string]bool{}
	for i := range all {
		if s.Match(&all[i]) {
			found = append(found, all[i])
		}
		if strings.HasPrefix(all[i].Container, s.Text) {
			prefixed[all[i].Container] = true
		}
	}
	if len(found) > 0 || len(prefixed) == 0 {
		return found, nil
	}
	if len(prefixed) > 1 {
		var candidates []string
		for name := range prefixed {
			candidates = append(candidates, name)
		}
		slices.Sort(candidates)
		return nil, &logs.AmbiguousError{Name: fmt.Sprintf("container %q", s.Text), Candidates: candidates}
	}
	return slices.DeleteFunc(slices.Clone(all),
		func(i Interval) bool { return !strings.HasPrefix(i.Container, s.Text) }), nil
}

// Subjects returns the addresses, ports, interfaces and containers in intervals, for completion.
func Subjects(all []Interval) (words []string) {
	for _, i := range all {
		words = append(words, i.Container)
		for _, a := range i.Addresses {
			words = append(words, a.String())
		}
		for _, p := range i.Ports {
			words = append(words, strconv.Itoa(p.HostPort))
		}
		for _, x := range i.Interfaces {
			words = append(words, x.Name)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}
