// Package why follows a packet through the namespaces of a host, as package host has read them, and
// explains where it stops: routes, neighbours, bridges, rule sets, translations, settings and the
// socket of the destination, forward and back. It sends nothing and changes nothing, except for
// [Places.Probe], which confirms an answer with a packet.
package why

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	// ReadListeners reads the listeners of a namespace; nil if that is not possible.
	ReadListeners func(n *host.Namespace) error
	// Masqueraded are addresses of containers in networks with ipMasq.
	Masqueraded []netip.Addr
	// Gone are containers that no longer have a namespace, by the addresses that they still hold.
	Gone map[netip.Addr]string

	prepared *prepared // see [Places.Explainer]
}

// prepared is what several questions about a host share.
type prepared struct {
	rules map[string]*packet.Rules // by namespace
	// inward are the links of the host's namespace that lead to masqueraded addresses, nil until a
	// question needs them.
	inward map[int]bool
}

func newPrepared() *prepared { return &prepared{rules: map[string]*packet.Rules{}} }

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
	Culprits []Culprit `json:"culprits,omitzero"` // at most maxCulprits, in the order of the way
	// Doubts are objects on the way that could not be evaluated.
	Doubts []string `json:"doubts,omitzero"`
	// Assumptions hold for the whole answer.
	Assumptions []string `json:"assumptions"`
	Probe       *Probe   `json:"probe,omitzero"` // see [Places.Probe]

	spaces []string // the IDs of the namespaces of the steps
}

// Step is a part of the way.
type Step struct {
	Name      string `json:"name"`      // route, bridge, filter, …
	Where     string `json:"where"`     // the namespace
	Direction string `json:"direction"` // request, reply
	Result    string `json:"result"`    // ok, stopped, unknown
	Text      string `json:"text"`
	Evidence  string `json:"evidence,omitzero"`   // a command that shows it
	Assuming  string `json:"assumption,omitzero"` // the step happens only under this condition
}

// Culprit is a cause with its fix.
type Culprit struct {
	ID      string `json:"id"`
	Text    string `json:"text"`
	Object  string `json:"object,omitzero"`  // a link, a chain, a setting, …
	Owner   string `json:"owner,omitzero"`   // the program that made the object, if known
	Handle  uint64 `json:"handle,omitzero"`  // of a rule of nftables
	Packets uint64 `json:"packets,omitzero"` // that met the rule or policy so far
	// Fix is a command, or several lines of commands. With the change that it makes, the packet and
	// its reply arrive. Without such a command, Advice says what may help.
	Fix    string `json:"fix,omitzero"`
	Advice string `json:"advice,omitzero"`
	See    string `json:"see,omitzero"` // a command that shows the cause

	followed bool  // the way behind the cause was followed as if Fix had run
	rule     *rule // of nftables that drops the packet
}

// Explain answers a question.
func Explain(h *host.Host, known Known, q Question) (*Report, error) {
	n := h.Namespace(q.Source)
	if n == nil {
		return nil, fmt.Errorf("namespace %s is not known", q.Source)
	}
	if known.prepared == nil {
		known.prepared = newPrepared()
	}
	choices := &packet.Choices{}
	var reports []*Report
	for {
		w := &walk{host: h, known: known, report: &Report{}, question: q, choices: choices,
			entries: map[string][]*entry{}, rules: map[string]*packet.Rules{}}
		w.request(n)
		reports = append(reports, w.report)
		if !choices.Next() {
			return joined(reports, true), nil
		}
		if len(reports) == maxWays {
			return joined(reports, false), nil
		}
	}
}

// maxWays limits the ways that are followed if rules choose one at random.
const maxWays = 32

// joined returns the report about all ways that rules can choose at random. complete is false if
// there are more.
func joined(reports []*Report, complete bool) *Report {
	worst := []Verdict{Stopped, Unknown, Limited, Left, Delivered}
	ends := map[Verdict]int{}
	shown := reports[0]
	for _, r := range reports {
		ends[r.Verdict]++
		if slices.Index(worst, r.Verdict) < slices.Index(worst, shown.Verdict) {
			shown = r
		}
	}
	if shown.Verdict == Left { // a delivered packet ends no worse
		ends[Left] += ends[Delivered]
	}
	switch number := len(reports); {
	case number == 1:
	case !complete && ends[shown.Verdict] == number:
		shown.doubtful(fmt.Sprintf("rules choose at random among more than %d ways", number))
	case ends[shown.Verdict] == number:
		shown.Assumptions = append(shown.Assumptions,
			fmt.Sprintf("rules choose one of %d ways at random, and all of them end alike", number))
	default:
		text := fmt.Sprintf("rules choose one of %d ways at random; this is one of the %d that end differently",
			number, ends[shown.Verdict])
		if len(shown.Culprits) > 0 {
			text += ": " + shown.Culprits[0].Text
		}
		shown.doubtful(text)
	}
	return shown
}

// doubtful makes the answer not known.
func (r *Report) doubtful(why string) {
	r.Verdict, r.Doubts = Unknown, append(r.Doubts, why)
	for i := range r.Culprits {
		c := &r.Culprits[i]
		if c.Fix != "" {
			c.Fix, c.Advice = "", strings.TrimSuffix("perhaps: "+c.Fix+"; "+c.Advice, "; ")
		}
	}
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
	hops     int
	path     []crossing
	found    host.Found // the last route
	bridged  bool       // br_netfilter has called the hook prerouting
	left     bool       // the packet has left this host
	choices  *packet.Choices
	rules    map[string]*packet.Rules // by namespace
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

// shown is ok with a command that shows the same.
func (w *walk) shown(n *host.Namespace, name, command, format string, args ...any) bool {
	w.ok(n, name, format, args...)
	w.evidence(n, command)
	return true
}

// evidence adds a command, which runs in a namespace, to the last step.
func (w *walk) evidence(n *host.Namespace, command string) {
	if command != "" {
		w.report.Steps[len(w.report.Steps)-1].Evidence = w.prefix(n) + command
	}
}

func (w *walk) step(n *host.Namespace, name, result, text string) bool {
	s := Step{Name: name, Where: w.known.Name(n), Direction: "request", Result: result, Text: text}
	if w.reply {
		s.Direction = "reply"
	}
	if len(w.report.Culprits) > 0 && result != "stopped" {
		s.Assuming = "the causes before are repaired"
	}
	w.report.Steps = append(w.report.Steps, s)
	w.report.spaces = append(w.report.spaces, n.ID)
	return result == "ok"
}

// stop adds the step at which the packet stops, and the cause. It returns false.
func (w *walk) stop(n *host.Namespace, name string, c Culprit) bool {
	w.report.Verdict = Stopped
	w.blame(n, name, c)
	return false
}

// repair is stop, but the way goes on as if the cause were repaired, because further causes can
// hide behind it. It returns false if the report has enough of them.
func (w *walk) repair(n *host.Namespace, name string, c Culprit) bool {
	c.followed = true
	w.stop(n, name, c)
	return len(w.report.Culprits) < maxCulprits
}

// maxCulprits limits the causes of a report.
const maxCulprits = 3

// blame adds a cause and its step, unless the same object is to blame already.
func (w *walk) blame(n *host.Namespace, name string, c Culprit) {
	if slices.ContainsFunc(w.report.Culprits, func(x Culprit) bool {
		return x.ID == c.ID && x.Object == c.Object && (x.Object != "" || x.Text == c.Text)
	}) {
		return
	}
	if c.See != "" {
		c.See = w.prefix(n) + c.See
	}
	text, _, _ := strings.Cut(c.Text, ". ") // the cause explains the rest
	if c.Packets > 0 {
		text += fmt.Sprintf("; %d packets so far", c.Packets)
	}
	w.step(n, name, "stopped", text)
	w.report.Steps[len(w.report.Steps)-1].Evidence = c.See
	w.report.Culprits = append(w.report.Culprits, c)
}

// end ends the walk with another verdict, unless a cause is known. It returns false.
func (w *walk) end(n *host.Namespace, name string, v Verdict, format string, args ...any) bool {
	w.left = v == Left
	if w.report.Verdict == "" {
		w.report.Verdict = v
	}
	result := map[Verdict]string{Left: "ok", Unknown: "unknown"}[v]
	w.step(n, name, result, fmt.Sprintf(format, args...))
	return false
}

// assume notes an assumption.
func (w *walk) assume(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(w.report.Assumptions, text) {
		w.report.Assumptions = append(w.report.Assumptions, text)
	}
}

// doubt notes an object that could not be evaluated.
func (w *walk) doubt(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(w.report.Doubts, text) {
		w.report.Doubts = append(w.report.Doubts, text)
	}
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

// at returns the culprit with the object that is to blame.
func (c Culprit) at(object string) Culprit {
	c.Object = object
	return c
}

// fix returns the culprit with a command that repairs it.
func (c Culprit) fix(format string, args ...any) Culprit {
	c.Fix = fmt.Sprintf(format, args...)
	return c
}

// advise returns the culprit with advice.
func (c Culprit) advise(format string, args ...any) Culprit {
	c.Advice = fmt.Sprintf(format, args...)
	return c
}

// weigh makes the commands of all causes mere advice, unless the packet arrives with them: the way
// behind each cause was followed to its end as if its command had run, and nothing on it is in doubt.
func (w *walk) weigh(arrived bool) {
	list := w.report.Culprits
	if arrived && len(w.report.Doubts) == 0 && !slices.ContainsFunc(list, func(c Culprit) bool {
		return !c.followed || c.Fix == "" || strings.HasPrefix(c.Fix, unreachable)
	}) {
		return
	}
	for i := range list {
		c := &list[i]
		if c.Fix != "" {
			c.Advice = strings.TrimSuffix("perhaps: "+c.Fix+"; "+c.Advice, "; ")
		}
		c.Fix = ""
	}
}

// see returns the culprit with a command that shows the cause.
func (c Culprit) see(format string, args ...any) Culprit {
	c.See = fmt.Sprintf(format, args...)
	return c
}
