package why

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
	"github.com/tenon-cni/tenon/internal/host/probe"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Probe is what a packet met that was sent to confirm an answer.
type Probe struct {
	*probe.Result
	// Evaluated is the verdict of the evaluation; [Report.Verdict] also respects the probe.
	Evaluated Verdict   `json:"evaluated"`
	Agreement Agreement `json:"agreement"`
	// Conflict says how the probe differs from the evaluation.
	Conflict string `json:"conflict,omitzero"`
	// Way names the namespaces in which the packet, and then the answer was seen.
	Way     []string `json:"way"`
	Dropped []string `json:"dropped,omitzero"` // decisions against the packet, in words
	Passed  []string `json:"passed,omitzero"`  // decisions for the packet, in words
	Rose    []string `json:"rose,omitzero"`    // counters of drops, in words
	// Blind are parts of the way that the probe cannot see.
	Blind []string `json:"blind"`
}

// Agreement compares a probe with the evaluation.
type Agreement string

// The agreements.
const (
	Confirms Agreement = "confirms"
	Differs  Agreement = "differs" // the verdict is then [Unknown]
	Decides  Agreement = "decides" // the evaluation did not know the whole way
	Open     Agreement = "open"    // the probe proves nothing
)

// ErrProbe reports a flow that cannot be probed.
var ErrProbe = errors.New("cannot be probed")

// Probe sends the packet of a question, traces it in the namespaces on the way, and adds what it
// finds to the report. Meanwhile, at most for [probe.Patience], each of these namespaces has one or
// two more tables of nftables. The error wraps [ErrProbe] if the flow cannot be probed.
func (p *Places) Probe(ctx context.Context, q Question, r *Report) error {
	switch {
	case q.To.IsLinkLocalUnicast() || q.From.IsLinkLocalUnicast():
		return fmt.Errorf("a link-local address %w: it does not say which link", ErrProbe)
	case q.To.IsMulticast() || q.To == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s %w: it is the address of several hosts", q.To, ErrProbe)
	}
	f := probe.Flow{Host: p.Host, Source: p.Host.Namespace(q.Source), From: q.From, To: q.To,
		Protocol: q.Protocol, Port: q.Port, Way: p.way(q, r)}
	result, err := probe.Run(ctx, f)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	x := &Probe{Result: result, Evaluated: r.Verdict, Way: []string{}, Blind: blind(f.Way)}
	for _, s := range result.Seen {
		name := p.Name(p.Host.Namespace(s.Namespace))
		if s.Direction == probe.Reply {
			name = "reply in " + name
		}
		x.Way = append(x.Way, name)
	}
	for _, d := range result.Decisions {
		if d.Verdict == "accept" {
			x.Passed = append(x.Passed, p.decision(d))
		} else {
			x.Dropped = append(x.Dropped, p.decision(d))
		}
	}
	for _, c := range result.Counters {
		name := p.Name(p.Host.Namespace(c.Namespace))
		x.Rose = append(x.Rose, fmt.Sprintf("%s: counter %s rose by %d", name, c.Name, c.Rose))
	}
	r.Probe = x
	x.judge(q, r)
	return nil
}

// way returns the namespaces to trace, in the order in which the packet should pass them.
func (p *Places) way(q Question, r *Report) (list []*host.Namespace) {
	ids := append([]string{q.Source}, r.spaces...)
	ids = append(ids, p.Host.Own().ID)
	for i := range p.Host.Namespaces {
		if n := &p.Host.Namespaces[i]; !q.To.IsLoopback() && n.Holder(q.To) != nil {
			ids = append(ids, n.ID)
		}
	}
	for _, id := range ids {
		if n := p.Host.Namespace(id); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// decision describes a decision.
func (p *Places) decision(d probe.Decision) string {
	n := p.Host.Namespace(d.Namespace)
	what := fmt.Sprintf("rule %d", d.Number)
	switch {
	case d.Handle == 0:
		what = "the policy"
	case d.Number == 0: // the rules were not read, or have changed
		what = fmt.Sprintf("the rule with handle %d", d.Handle)
	}
	place := packet.Place{Table: d.Table, Chain: d.Chain}
	verb := map[string]string{"accept": "accepts", "drop": "drops", "queue": "hands to a program",
		"stolen": "keeps"}[d.Verdict]
	return fmt.Sprintf("%s: %s of %s %s the %s", p.Name(n), what, place.Title(), verb, d.Direction)
}

// blind lists what the trace of nftables does not show in some namespaces.
func blind(way []*host.Namespace) (list []string) {
	hasLegacy, hasBridge := false, false
	for _, n := range way {
		for _, t := range n.Ruleset.Tables {
			program, _ := packet.Place{Table: t.Table}.Program()
			hasLegacy = hasLegacy || strings.HasSuffix(program, "-legacy")
		}
		for _, l := range n.Links {
			hasBridge = hasBridge || l.Bridge != nil
		}
	}
	if hasLegacy {
		list = append(list, "rules of legacy iptables")
	}
	if hasBridge {
		list = append(list, "ports of bridges")
	}
	return append(list, "routing, chains at links, filters of tc and XDP programs, except by counters",
		"other hosts")
}

// judge compares the probe with the evaluation, and sets the verdict of both. That there is no answer
// proves nothing alone: the packet may have been lost or late, and a service need not answer a
// datagram.
func (x *Probe) judge(q Question, r *Report) {
	answered := x.Outcome == probe.Answered
	failed := !answered && (x.Outcome != probe.Silent || x.drop() != nil)
	silent := !answered && !failed
	hidden := q.Protocol == unix.IPPROTO_UDP // whether the service got the packet
	switch v := x.Evaluated; {
	case v == Unknown && answered:
		x.Agreement, r.Verdict = Decides, Delivered
	case v == Unknown && failed:
		x.Agreement, r.Verdict = Decides, Stopped
	case v == Left && answered:
		x.Agreement, r.Verdict = Decides, Delivered
	case v == Left && failed && x.drop() == nil && x.Outcome != probe.NotSent:
		x.Agreement, r.Verdict = Decides, Stopped
	case v == Left && silent && !hidden:
		x.Agreement = Open
		r.doubtful("the packet leaves this host, but no answer arrives")
	case silent && (hidden || v == Unknown):
		x.Agreement = Open
	case v == Stopped && !answered, (v == Delivered || v == Limited) && answered:
		x.Agreement = Confirms
	case answered:
		x.differ(r, "the packet was answered")
	case x.drop() != nil:
		x.differ(r, x.Dropped[0])
	default:
		x.differ(r, "the packet was not answered")
	}
	if x.Evaluated == Stopped && !answered {
		if conflict := x.elsewhere(r); conflict != "" {
			x.differ(r, conflict)
		}
	}
}

// differ makes the answer not known.
func (x *Probe) differ(r *Report, conflict string) {
	x.Agreement, x.Conflict = Differs, conflict
	r.doubtful("the probe differs from the evaluation: " + conflict)
}

// drop returns the first decision that ends the way, nil if there is none.
func (x *Probe) drop() *probe.Decision {
	i := slices.IndexFunc(x.Decisions, func(d probe.Decision) bool { return d.Verdict == "drop" })
	if i < 0 {
		return nil
	}
	return &x.Decisions[i]
}

// elsewhere compares the place where the evaluation stops the packet with what the probe saw. It
// returns a sentence if the packet got further, or was dropped by another rule.
func (x *Probe) elsewhere(r *Report) string {
	i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Result == "stopped" })
	if i < 0 || len(r.Culprits) == 0 {
		return ""
	}
	by := r.Culprits[0].rule
	if d := x.drop(); d != nil && (by == nil || !by.decided(d)) {
		return x.Dropped[0]
	}
	if r.Steps[i].Direction == string(probe.Reply) {
		return ""
	}
	for j, s := range x.Seen {
		switch {
		case s.Direction == probe.Reply && x.Outcome == probe.Silent:
			return "a service sent an answer: " + x.Way[j]
		case s.Direction == probe.Request && !slices.Contains(r.spaces[:i+1], s.Namespace):
			return "the packet was seen in " + x.Way[j]
		}
	}
	return ""
}

// rule is the place of a decision of the evaluation.
type rule struct {
	namespace, chain string
	table            nftmsg.Table
	handle           uint64 // 0: the policy
}

// decided reports whether the decision that the probe saw is the evaluated one.
func (r *rule) decided(d *probe.Decision) bool {
	return r.namespace == d.Namespace && r.table == d.Table && r.chain == d.Chain &&
		r.handle == d.Handle
}
