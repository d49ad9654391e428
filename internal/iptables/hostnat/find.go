package hostnat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/tenon-cni/tenon/internal/iptables"
)

// The base chains of a nat table.
const (
	prerouting  = "PREROUTING"
	output      = "OUTPUT"
	postrouting = "POSTROUTING"
)

// Query asks which rule of a base chain decides about traffic before a rule that CNI plugins
// would append to that chain.
type Query struct {
	Base string // PREROUTING, OUTPUT or POSTROUTING
	Traffic

	// Until is a chain of CNI plugins: rules after a jump to it come too late to decide.
	Until string
	// Inserted means that the plugins insert the jump to Until before all other rules. If the jump
	// does not exist, no rule counts.
	Inserted bool
}

// Traffic describes the packets of a query, all of one family. An empty list matches all packets.
type Traffic struct {
	From  []netip.Prefix // sources
	To    []netip.Prefix // destinations
	NotTo []netip.Prefix // destinations that the query excludes
	Ports []Port         // destinations
	// FromHost means that the sources include addresses of the host.
	FromHost bool
	// IsLocal reports whether an address is one of the host. Required with Ports.
	IsLocal func(netip.Addr) bool
}

// Port is a range of ports of the host.
type Port struct {
	Protocol byte       // IPPROTO_TCP, _UDP or _SCTP
	Host     netip.Addr // address of the host; not valid: any
	PortRange
}

// Found is a rule that decides, with its place.
type Found struct {
	Rule
	Family iptables.Family
	Table  string
	Legacy bool   // the table is of the legacy variant
	In     string // the chain
	Number int    // in the chain, from 1
}

// String describes the rule and its place.
func (f *Found) String() string {
	return fmt.Sprintf("rule %d of chain %s in %s: %s", f.Number, f.In, f.Table, f.Rule)
}

// errDeep reports that chains lead to each other in a cycle, which the kernel refuses.
var errDeep = errors.New("chains form a cycle")

const maxDepth = 16

// Find returns the first rule that decides about the traffic, or nil. chain returns the rules of a
// chain; Find calls it for the base chain and for chains of operators that its rules lead to.
func (q Query) Find(chain func(name string) ([]Rule, error)) (*Found, error) {
	rules, err := chain(q.Base)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Chain == q.Until && q.Until != "" })
	switch {
	case i >= 0:
		rules = rules[:i]
	case q.Inserted:
		return nil, nil
	}
	found, _, err := walker{q.Traffic, chain}.walk(place{chain: q.Base, last: true}, rules)
	return found, err
}

type walker struct {
	Traffic
	chain func(string) ([]Rule, error)
}

// place is a chain during the search.
type place struct {
	chain string
	last  bool // its end is the end of the base chain
	depth int  // of jumps
}

// walk searches the rules of a chain. ends means that none of the traffic reaches their end.
func (w walker) walk(at place, rules []Rule) (found *Found, ends bool, err error) {
	for i, r := range rules {
		m := w.meets(r)
		if m == never || known(r.Chain) || knownComment(r.Comment) {
			continue
		}
		switch {
		case r.Chain != "":
			found, ends, err = w.follow(at, r)
			ends = m == always && (ends || r.Goto)
			if r.Goto && at.last && found == nil && err == nil {
				// The end of this chain ends the table.
				return &Found{Rule: r, In: at.chain, Number: i + 1}, true, nil
			}
		case r.Target == "RETURN" && !at.last:
			if m == always {
				return nil, false, nil // the caller continues after the jump
			}
		case r.Target == "RETURN" || terminal(r.Target):
			return &Found{Rule: r, In: at.chain, Number: i + 1}, true, nil
		}
		if found != nil || ends || err != nil {
			return found, ends, err
		}
	}
	return nil, false, nil
}

// follow searches the chain that a rule leads to.
func (w walker) follow(at place, r Rule) (found *Found, ends bool, err error) {
	if at.depth >= maxDepth {
		return nil, false, errDeep
	}
	rules, err := w.chain(r.Chain)
	if err != nil {
		return nil, false, err
	}
	return w.walk(place{r.Chain, at.last && r.Goto, at.depth + 1}, rules)
}

// terminal reports whether a target decides, so that the kernel evaluates no later rule of the
// table.
func terminal(target string) bool {
	return slices.Contains([]string{"ACCEPT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"},
		target)
}

// certainty reports whether a condition is met by none, some or all of the traffic.
type certainty int

const (
	never certainty = iota
	sometimes
	always
)

// meets compares the conditions of a rule with the traffic. A condition that cannot be evaluated
// counts as met by some.
func (t Traffic) meets(r Rule) certainty {
	if !t.FromHost && len(t.From) > 0 && !r.SourceType.remote() {
		return never
	}
	if len(t.Ports) > 0 && !r.DestType.local() {
		return never
	}
	if r.Dest.IsValid() && !r.Dest.Not &&
		slices.ContainsFunc(t.NotTo,
			func(n netip.Prefix) bool { return contains(n, r.Dest.Prefix) }) {
		return never
	}
	m := min(r.Source.holds(t.From), r.Dest.holds(t.To), t.ports(r))
	vague := len(r.Others) > 0 || r.In.Text != "" || r.Out.Text != "" ||
		r.SourceType.Types != 0 || r.DestType.Types != 0 && len(t.Ports) == 0
	if vague {
		m = min(m, sometimes)
	}
	return m
}

// holds compares a condition with networks.
func (n Network) holds(nets []netip.Prefix) certainty {
	if !n.IsValid() {
		return always
	}
	if len(nets) == 0 {
		return n.inverted(sometimes)
	}
	inside, outside := 0, 0
	for _, x := range nets {
		switch {
		case contains(n.Prefix, x):
			inside++
		case !n.Overlaps(x):
			outside++
		}
	}
	switch len(nets) {
	case inside:
		return n.inverted(always)
	case outside:
		return n.inverted(never)
	}
	return sometimes
}

func (n Network) inverted(c certainty) certainty {
	switch {
	case n.Bits() == 0 && !n.Not:
		return always
	case n.Bits() == 0:
		return never
	case n.Not:
		return always - c
	}
	return c
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// ports compares the conditions of a rule on the destination with the ports of the traffic.
func (t Traffic) ports(r Rule) certainty {
	some := r.Protocol.Text != "" || len(r.Ports.Ranges) > 0
	if len(t.Ports) == 0 {
		if some {
			return sometimes
		}
		return always
	}
	if slices.ContainsFunc(t.Ports, func(p Port) bool { return r.Covers(p, t.IsLocal) }) {
		if some || r.Dest.IsValid() {
			return sometimes
		}
		return always
	}
	return never
}

// Covers reports whether a packet to a port of the host can meet the conditions of a rule on
// protocol, destination port and destination address.
func (r Rule) Covers(p Port, isLocal func(netip.Addr) bool) bool {
	if r.Protocol.Text != "" &&
		(r.Protocol.Text == strconv.Itoa(int(p.Protocol))) == r.Protocol.Not {
		return false
	}
	return r.Ports.meet(p.PortRange) && r.Dest.covers(p.Host, isLocal)
}

func (c Ports) meet(p PortRange) bool {
	if len(c.Ranges) == 0 {
		return true
	}
	if c.Not {
		return !slices.ContainsFunc(c.Ranges, func(r PortRange) bool {
			return r.First <= p.First && p.Last <= r.Last
		})
	}
	return slices.ContainsFunc(c.Ranges, func(r PortRange) bool {
		return r.First <= p.Last && p.First <= r.Last
	})
}

// covers reports whether a packet to an address of the host can meet the condition.
func (n Network) covers(host netip.Addr, isLocal func(netip.Addr) bool) bool {
	switch {
	case !n.IsValid():
		return true
	case host.IsValid():
		return n.Contains(host) != n.Not
	case n.Not:
		return n.Bits() > 0
	case n.IsSingleIP():
		return isLocal(n.Addr())
	}
	return true // a network can contain an address of the host
}
