// Package plan finds out what an operation would change. It runs the real operation in a scratch
// world: a copy of the network namespaces concerned, and a private, otherwise read-only view of the
// files, in which no daemon can be reached. The differences of the world are the plan.
package plan

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
)

// Plan is what an operation would change.
type Plan struct {
	Version    int             `json:"version"` // of this format: 1
	Command    string          `json:"command"` // the operation: add, del, gc, repair
	Apply      string          `json:"apply"`   // the command line that makes the changes
	Host       string          `json:"host"`
	Snapshot   Snapshot        `json:"snapshot"`
	Steps      []Step          `json:"steps"`      // in the order of the operation
	Operations []Operation     `json:"operations"` // plugin calls, and the changes that they describe
	Summary    Summary         `json:"summary"`
	Unchanged  int             `json:"unchanged"` // objects in the namespaces that are concerned
	Untouched  int             `json:"unchangedAttachments"`
	Result     json.RawMessage `json:"result,omitempty"` // output of the operation as JSON
	Failure    *Failure        `json:"failure,omitempty"`
	Drift      []Drift         `json:"drift"`           // outside the operation
	Notes      []string        `json:"notes,omitempty"` // limits of this plan
}

// Summary counts the steps that are neither derived nor parts of others.
type Summary struct {
	Add     int `json:"add"`
	Change  int `json:"change"`
	Delete  int `json:"delete"`
	Unknown int `json:"unknown"` // calls with an unknown effect
}

// Changes reports whether the operation changes anything, as far as the plan knows.
func (s Summary) Changes() bool { return s.Add+s.Change+s.Delete+s.Unknown > 0 }

// Ask is the action of a step that calls a plugin with an unknown effect.
const Ask host.Action = "run"

// Kinds of steps that concern no object of the kernel.
const (
	KindLease  host.Kind = "lease"  // address that an IPAM plugin has reserved
	KindRecord host.Kind = "record" // of an attachment
	KindFile   host.Kind = "file"
	KindPlugin host.Kind = "plugin"
)

// Step is a change of an object, or a call with an unknown effect.
type Step struct {
	Action host.Action `json:"action"`
	Kind   host.Kind   `json:"kind"`
	Where  string      `json:"where"` // "host", or the container
	Object string      `json:"object"`
	Before string      `json:"before,omitzero"`
	After  string      `json:"after,omitzero"`
	Reason string      `json:"reason,omitzero"`
	Plugin string      `json:"plugin,omitzero"`
	// Owner is the attachment, as NETWORK/CONTAINER/INTERFACE, "" if the object has none.
	Owner string `json:"owner,omitzero"`
	// Predicted reports that the real operation may choose another address or number.
	Predicted bool `json:"predicted,omitzero"`
	// Uncertain reports that the step follows a call with an unknown effect.
	Uncertain bool `json:"uncertain,omitzero"`
	// Derived reports that the kernel makes the change with another one.
	Derived bool   `json:"derived,omitzero"`
	Part    string `json:"part,omitzero"` // table that is added or deleted as a whole

	order int
}

// Counted reports whether the summary counts the step.
func (s Step) Counted() bool { return !s.Derived && s.Part == "" }

// About names the operation, for [New].
type About struct {
	Command string
	Apply   string            // the command line that applies the plan
	Names   map[string]string // containers by the paths of their namespaces
	// Known are the attachments that can own objects of the plan.
	Known    []cni.Attachment
	Recorded []cni.Attachment // attached now
	// AsksFirewalld reports that a plugin of a recorded attachment asks firewalld if it runs.
	AsksFirewalld bool
	// Requested are addresses that the caller asks for: they are not predicted.
	Requested []netip.Addr
	Input     string   // arguments and configurations, with the MAC addresses that they ask for
	StateDirs []string // directories with attachment records, their locks and indexes
	Drift     []Drift
}

// New composes a plan.
func New(a About, o *Outcome) *Plan {
	p := &Plan{Version: 1, Command: a.Command, Apply: a.Apply, Host: o.Before.Name,
		Snapshot: o.Snapshot, Steps: []Step{}, Operations: o.Operations, Drift: a.Drift, Notes: o.Notes}
	if json.Valid(o.Stdout) && o.End.Error == "" {
		p.Result = o.Stdout
	}
	if o.End.Error != "" {
		p.Failure = &o.End
	}
	if o.firewalld && a.AsksFirewalld && a.Command == "repair" {
		p.Notes = append(p.Notes,
			"firewalld runs, but a plan does not ask it: what repair restores for firewall is uncertain")
	}
	c := &composer{About: a, out: o, first: -1}
	c.callsUnknown()
	c.changes()
	c.files()
	slices.SortStableFunc(c.steps, func(x, y Step) int { return cmp.Compare(x.order, y.order) })
	p.Steps = append(p.Steps, c.steps...)
	p.Unchanged = c.unchanged
	for _, a := range c.Recorded {
		if !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Owner == a.String() }) {
			p.Untouched++
		}
	}
	for _, s := range p.Steps {
		if !s.Counted() {
			continue
		}
		switch s.Action {
		case host.Added:
			p.Summary.Add++
		case host.Changed:
			p.Summary.Change++
		case host.Deleted:
			p.Summary.Delete++
		case Ask:
			p.Summary.Unknown++
		}
	}
	return p
}

// composer collects the steps of a plan.
type composer struct {
	About
	out       *Outcome
	steps     []Step
	first     int // the first operation with an unknown effect, -1: none
	last      int // the operation of the step before
	unchanged int
}

func (c *composer) callsUnknown() {
	for i, o := range c.out.Operations {
		if o.Unknown == "" {
			continue
		}
		if c.first < 0 {
			c.first = i
		}
		c.steps = append(c.steps, Step{Action: Ask, Kind: KindPlugin, Where: "host", Object: o.Plugin,
			Reason: o.Unknown + ", effect unknown", Plugin: o.Plugin, Owner: ownerText(o.Key), order: i})
	}
}

func ownerText(a cni.Attachment) string {
	if a == (cni.Attachment{}) {
		return ""
	}
	return a.String()
}

// changes adds the differences of the namespaces.
func (c *composer) changes() {
	before, after := c.out.Before, c.out.After
	for i := range before.Namespaces {
		old, now := &before.Namespaces[i], &after.Namespaces[i]
		where := c.where(i)
		list := host.DiffNamespace(old, now)
		touched := 0
		for _, x := range list {
			s := Step{Action: x.Action, Kind: x.Kind, Where: where, Object: x.Object, Before: x.Before,
				After: x.After, Derived: x.Derived, Part: x.Part, Owner: c.owner(x.Label)}
			s.Reason = purpose(s)
			if s.Kind == host.KindElement && s.Owner != "" {
				s.Part = ""
			}
			c.shorten(&s, x.Label)
			c.vanishes(&s, list)
			if x.Action != host.Added && !x.Derived && x.Kind != host.KindSetting {
				touched++
			}
			c.attribute(&s)
			c.steps = append(c.steps, s)
		}
		c.unchanged += old.Count() - touched
	}
}

// shorten drops the MAC address that the kernel chooses for a new link, and the tag of the owner.
func (c *composer) shorten(s *Step, label string) {
	drop := func(text string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(text, ", "), func(p string) bool {
			mac, ok := strings.CutPrefix(p, "MAC ")
			random := ok && s.Kind == host.KindLink && s.Action == host.Added &&
				!strings.Contains(strings.ToLower(c.Input), mac)
			return random || s.Owner != "" && (p == "alias "+label || p == "comment "+label)
		}), ", ")
	}
	s.Before, s.After = drop(s.Before), drop(s.After)
}

// vanishes marks an object that the kernel deletes with its link.
func (c *composer) vanishes(s *Step, all []host.Change) {
	if s.Action != host.Deleted || s.Kind == host.KindLink {
		return
	}
	_, link, ok := strings.Cut(s.Object, " dev ")
	if !ok {
		return
	}
	link, _, _ = strings.Cut(link, " ")
	s.Derived = s.Derived || slices.ContainsFunc(all, func(x host.Change) bool {
		return x.Kind == host.KindLink && x.Action == host.Deleted && x.Object == link
	})
}

func (c *composer) where(i int) string {
	path := c.out.paths[i]
	if path == "" {
		return "host"
	}
	return cmp.Or(c.Names[path], path)
}

// owner returns the attachment that a label names.
func (c *composer) owner(label string) string {
	if label == "" {
		return ""
	}
	for _, a := range c.Known {
		if strings.Contains(label, string(a.Owner())) {
			return a.String()
		}
	}
	return ""
}

// attribute finds the operation that makes a change: the first one with the object in its text. A
// sysctl that no operation names follows from another change.
func (c *composer) attribute(s *Step) {
	s.order = len(c.out.Operations)
	named := false
	for _, words := range c.words(*s) {
		for i, o := range c.out.Operations {
			if o.Text == "" || slices.ContainsFunc(words, func(w string) bool { return !mentions(o.Text, w) }) {
				continue
			}
			s.order, s.Plugin, named = i, o.Plugin, true
			s.Reason = cmp.Or(s.Reason, o.Text)
			break
		}
		if named {
			break
		}
	}
	s.Derived = s.Derived || s.Kind == host.KindSetting && !named || followsPort(*s)
	if !named {
		s.order = max(s.order, c.last)
	}
	c.last = s.order
	c.mark(s)
}

// followsPort reports whether a step is only the new MAC address of a bridge that takes the lowest
// one of its ports, which is random.
func followsPort(s Step) bool {
	only := func(text string) bool {
		return strings.HasPrefix(text, "MAC ") && !strings.Contains(text, ",")
	}
	return s.Kind == host.KindLink && s.Action == host.Changed && only(s.Before) && only(s.After) &&
		!mentions(s.Reason, strings.TrimPrefix(s.After, "MAC "))
}

func (c *composer) mark(s *Step) {
	s.Uncertain = c.first >= 0 && s.order > c.first && !s.Derived
	for _, text := range []*string{&s.Object, &s.Before, &s.After, &s.Reason} {
		*text = strings.ReplaceAll(*text, Unknown+"/24", "ADDRESS")
		*text = strings.ReplaceAll(*text, Unknown, "ADDRESS")
	}
}

// words returns texts with which a plugin can name an object, the most specific ones first. An
// operation names it if it contains all of a list.
func (c *composer) words(s Step) [][]string {
	fields := strings.Fields(s.Object)
	if len(fields) == 0 {
		return nil
	}
	switch s.Kind {
	case host.KindLink:
		if s.Action == host.Deleted {
			return [][]string{{"delete", "link", fields[0]}, {"delete", "veth"}, {"link", fields[0]}}
		}
		return [][]string{{"add", fields[0]}, {"link", fields[0]}, {fields[0]}}
	case host.KindRoute:
		dst := strings.NewReplacer("default", "0.0.0.0/0").Replace(fields[0])
		if strings.HasPrefix(s.Object, "default (IPv6)") {
			dst = "::/0"
		}
		return [][]string{{"route", dst}, {dst}}
	case host.KindSetting:
		return [][]string{{strings.ReplaceAll(s.Object, ".", "/")}, {s.Object}}
	case host.KindTable, host.KindChain, host.KindSet, host.KindElement, host.KindRule:
		const set = 2 // after family and table
		if len(fields) <= set {
			return [][]string{{"rules"}, {"masquerade"}}
		}
		return append(operationsOf(fields[set]), []string{fields[set]}, []string{"rules"})
	}
	return [][]string{fields[:1]}
}

// purposes are the purposes of the sets of table "inet tenon" and "bridge tenon", by the beginnings
// of their names, with a word in the description of the operation.
var purposes = []struct{ set, purpose, word string }{
	{"nomasq", "exempt from masquerading", "masquerade"}, {"masq", "masquerade", "masquerade"},
	{"snat", "masquerade", "masquerade"}, {"cluster", "cluster addresses", "masquerade"},
	{"dnat", "published port", "portmap"},
	{"hairpin", "published port, from its own network", "portmap"},
	{"publishers", "published port, holder", "portmap"},
	{"gates", "published port, conditions", "portmap"},
	{"admitted", "accept forwarded traffic", "firewall"}, {"isolated", "isolation", "firewall"},
}

func operationsOf(set string) (list [][]string) {
	for _, p := range purposes {
		if strings.HasPrefix(set, p.set) {
			list = append(list, []string{p.word})
		}
	}
	return list
}

// purpose returns the purpose of an element of Tenon.
func purpose(s Step) string {
	fields := strings.Fields(s.Object)
	if s.Kind != host.KindElement || len(fields) < 3 || fields[1] != "tenon" {
		return ""
	}
	for _, p := range purposes {
		if strings.HasPrefix(fields[2], p.set) {
			return p.purpose
		}
	}
	return ""
}

// mentions reports whether a text contains a word, not only as a part of another one.
func mentions(text, word string) bool {
	for rest := text; word != ""; {
		i := strings.Index(rest, word)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(word):]
		if boundary(lastByte(before)) && boundary(firstByte(after)) {
			return true
		}
		rest = after
	}
	return false
}

func lastByte(s string) byte {
	if s == "" {
		return ' '
	}
	return s[len(s)-1]
}

func firstByte(s string) byte {
	if s == "" {
		return ' '
	}
	return s[0]
}

func boundary(b byte) bool {
	return b != '-' && b != '_' && b != '.' &&
		(b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z')
}

// files adds changes of files: leases, attachment records and others, but not locks and indexes.
func (c *composer) files() {
	for _, f := range c.out.files {
		base := filepath.Base(f.Path)
		if strings.HasPrefix(base, ".") || strings.Contains(base, "lock") ||
			strings.HasPrefix(base, "last_reserved_ip") || f.text() == "" {
			continue
		}
		s := Step{Action: host.Changed, Kind: KindFile, Where: "host", Object: f.Path,
			order: len(c.out.Operations)}
		switch {
		case f.Before == nil:
			s.Action = host.Added
		case f.After == nil:
			s.Action = host.Deleted
		}
		c.describeFile(&s, f)
		c.mark(&s)
		other := func(x Step) bool { return x.Kind == KindRecord && x.Object == s.Object }
		if i := slices.IndexFunc(c.steps, other); s.Kind == KindRecord && i >= 0 {
			c.steps[i].Action = host.Changed // DEL has renamed the file, and has failed
			continue
		}
		c.steps = append(c.steps, s)
	}
}

func (c *composer) describeFile(s *Step, f file) {
	base := filepath.Base(f.Path)
	if a, err := netip.ParseAddr(base); err == nil {
		pool := filepath.Base(filepath.Dir(f.Path))
		s.Kind, s.Object, s.Reason = KindLease, a.String(), "pool "+pool
		s.Owner = strings.Join(append([]string{pool}, strings.Fields(f.text())...), "/")
		s.Predicted = s.Action == host.Added && !slices.Contains(c.Requested, a)
		s.order = c.firstMention(a.String())
		return
	}
	ofState := slices.ContainsFunc(c.StateDirs, func(dir string) bool {
		return strings.HasPrefix(f.Path, dir+"/")
	})
	for _, known := range c.Known {
		ofLibcni := strings.Join([]string{known.Network, known.Container, known.IfName}, "-")
		if base != ofLibcni && !strings.Contains(base, string(known.Owner())) {
			continue
		}
		s.Owner = known.String()
		if ofState {
			s.Kind, s.Object = KindRecord, known.String()
			return
		}
	}
	s.Derived = ofState // an index, or the versions of plugins
}

// firstMention returns the first operation that names a word.
func (c *composer) firstMention(word string) int {
	for i, o := range c.out.Operations {
		if o.Text != "" && mentions(o.Text, word) {
			return i
		}
	}
	return len(c.out.Operations)
}
