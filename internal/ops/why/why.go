// Package why follows a packet through the namespaces of a host, as package host has read them, and
// explains where it stops: routes, neighbours, bridges, rule sets, translations, settings and the
// socket of the destination, forward and back. It sends nothing and changes nothing.
package why

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
)

// Question is a flow: does a first packet reach the destination, and does the reply?
type Question struct {
	Source   string     // the ID of a namespace
	From     netip.Addr // source address; invalid: the kernel's choice
	To       netip.Addr
	Protocol uint8  // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP or IPPROTO_ICMPV6
	Port     uint16 // of the destination
}

// Known is what the records of attachments add to the state of a host.
type Known struct {
	// Name returns a name of a namespace for the output, such as the container in it.
	Name func(n *host.Namespace) string
	// Masqueraded are addresses of containers in networks with ipMasq.
	Masqueraded []netip.Addr
	// Gone are containers that no longer have a namespace, by the addresses that they still hold.
	Gone map[netip.Addr]string
}

// Verdict is the answer to a question.
type Verdict string

// The verdicts.
const (
	Delivered Verdict = "delivered" // and the reply, too
	Left      Verdict = "left"      // through an uplink; the rest of the way is not known
	Limited   Verdict = "limited"   // only large packets stop
	Stopped   Verdict = "stopped"
	Unknown   Verdict = "unknown" // a program or a rule that cannot be evaluated decides
)

// Report is the answer.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Title    string    `json:"title"` // the flow
	Steps    []Step    `json:"steps"`
	Culprits []Culprit `json:"culprits,omitzero"`
	Doubts   []string  `json:"doubts,omitzero"` // rules that could not be evaluated
}

// Step is a part of the way.
type Step struct {
	Name   string `json:"name"`  // route, bridge, filter, …
	Where  string `json:"where"` // the namespace
	Reply  bool   `json:"reply,omitzero"`
	Result string `json:"result"` // ok, stopped, unknown
	Text   string `json:"text"`
}

// Culprit is a cause with its fix.
type Culprit struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Fix  string `json:"fix,omitzero"`
	See  string `json:"see,omitzero"` // a command that shows the cause
}

// Explain answers a question.
func Explain(h *host.Host, known Known, q Question) (*Report, error) {
	n := h.Namespace(q.Source)
	if n == nil {
		return nil, fmt.Errorf("namespace %s is not known", q.Source)
	}
	w := &walk{host: h, known: known, report: &Report{}, question: q, entries: map[string][]*entry{},
		rules: map[string]*packet.Rules{}}
	w.request(n)
	return w.report, nil
}

// walk is the way of one flow, forward and back.
type walk struct {
	host     *host.Host
	known    Known
	report   *Report
	question Question
	reply    bool
	packet   *packet.Packet
	entries  map[string][]*entry // of connection tables, by namespace
	entry    *entry              // of the packet, in the last namespace
	rules    map[string]*packet.Rules
	hops     int
	path     []crossing
	found    host.Found // the last route
	bridged  bool       // br_netfilter has called the hook prerouting
}

// entry is the flow in the connection table of a namespace: as its first packet came and went.
type entry struct {
	conn       packet.Connection
	came, went tuple
}

// tuple are the addresses and ports of a packet.
type tuple struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

func tupleOf(p *packet.Packet) tuple { return tuple{p.Src, p.Dst, p.SrcPort, p.DstPort} }

func (t tuple) reversed() tuple { return tuple{t.dst, t.src, t.dstPort, t.srcPort} }

// crossing is a link that the packet left through, for the check of MTUs.
type crossing struct {
	from, to *host.Namespace
	out, in  *host.Link
	reply    bool
	sender   netip.Addr
}

// ok adds a step that the packet has passed. It returns true.
func (w *walk) ok(n *host.Namespace, name, format string, args ...any) bool {
	return w.step(n, name, "ok", fmt.Sprintf(format, args...))
}

func (w *walk) step(n *host.Namespace, name, result, text string) bool {
	w.report.Steps = append(w.report.Steps, Step{Name: name, Where: w.known.Name(n), Reply: w.reply,
		Result: result, Text: text})
	return result == "ok"
}

// stop adds the step at which the packet stops, and the cause. It returns false.
func (w *walk) stop(n *host.Namespace, name string, c Culprit) bool {
	w.report.Verdict = Stopped
	w.report.Culprits = append(w.report.Culprits, c)
	return w.step(n, name, "stopped", c.Text)
}

// end ends the walk with another verdict. It returns false.
func (w *walk) end(n *host.Namespace, name string, v Verdict, format string, args ...any) bool {
	w.report.Verdict = v
	w.step(n, name, map[Verdict]string{Left: "ok", Unknown: "unknown"}[v], fmt.Sprintf(format, args...))
	return false
}

// in says where an object is: "on the host", or "in web".
func (w *walk) in(n *host.Namespace) string {
	if n == w.host.Own() {
		return "on the host"
	}
	return "in " + w.known.Name(n)
}

// family returns "ipv4" or "ipv6" in names of settings.
func (w *walk) family() string {
	if w.packet.Dst.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// destination describes where the packet goes.
func destination(a netip.Addr, port uint16, protocol uint8) string {
	switch protocol {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return a.String()
	case unix.IPPROTO_UDP:
		return netip.AddrPortFrom(a, port).String() + "/udp"
	}
	return netip.AddrPortFrom(a, port).String()
}

// cause returns a culprit without a fix.
func cause(id, format string, args ...any) Culprit {
	return Culprit{ID: id, Text: fmt.Sprintf(format, args...)}
}

// fix returns the culprit with its fix.
func (c Culprit) fix(format string, args ...any) Culprit {
	c.Fix = fmt.Sprintf(format, args...)
	return c
}

// see returns the culprit with a command that shows the cause.
func (c Culprit) see(format string, args ...any) Culprit {
	c.See = fmt.Sprintf(format, args...)
	return c
}
