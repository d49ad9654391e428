package host

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Action is the difference of an object between two states.
type Action string

// The actions.
const (
	Added   Action = "add"
	Changed Action = "change"
	Deleted Action = "delete"
)

// Change is the difference of an object between two states, in words.
type Change struct {
	Namespace string `json:"namespace"` // see [Namespace.ID]
	Action    Action `json:"action"`
	Kind      Kind   `json:"kind"`
	Object    string `json:"object"` // unique for its kind and namespace
	// Before and After are properties of the object: all of one that was added or deleted, and those
	// that differ of one that was changed.
	Before string `json:"before,omitzero"`
	After  string `json:"after,omitzero"`
	Label  string `json:"label,omitzero"` // alias of a link, comment of an element or rule
	// Derived reports that the kernel changes the object with another one: routes of addresses, and
	// settings of new links.
	Derived bool   `json:"derived,omitzero"`
	Part    string `json:"part,omitzero"` // table of nftables that has been added or deleted with it
}

// Kind is a kind of objects.
type Kind string

// The kinds, in the order in which [Diff] lists them.
const (
	KindLink       Kind = "link"
	KindAddress    Kind = "address"
	KindRoute      Kind = "route"
	KindPolicy     Kind = "policy rule"
	KindNeighbour  Kind = "neighbour"
	KindForwarding Kind = "fdb entry"
	KindSetting    Kind = "sysctl"
	KindTable      Kind = "table"
	KindChain      Kind = "chain"
	KindSet        Kind = "set"
	KindElement    Kind = "element"
	KindRule       Kind = "rule"
)

// Diff returns the differences in configuration between two states of a host, ordered by namespace
// and kind. Objects are compared by their names, not by indexes and handles.
// Diff ignores what traffic and time change: carrier, dynamic neighbours and forwarding entries,
// progress of address detection, counters, and listeners. It also ignores the local routes that the
// kernel derives from addresses.
func Diff(before, after *Host) (list []Change) {
	for i := range before.Namespaces {
		old := &before.Namespaces[i]
		now := after.Namespace(old.ID)
		if now == nil {
			now = &Namespace{ID: old.ID}
		}
		list = append(list, DiffNamespace(old, now)...)
	}
	for i := range after.Namespaces {
		if now := &after.Namespaces[i]; before.Namespace(now.ID) == nil {
			list = append(list, DiffNamespace(&Namespace{ID: now.ID}, now)...)
		}
	}
	return list
}

// DiffNamespace is [Diff] for two states of one namespace. The changes have the ID of now.
func DiffNamespace(before, now *Namespace) (list []Change) {
	old := map[string][]object{}
	for _, o := range before.objects() {
		old[o.key()] = append(old[o.key()], o)
	}
	objects := now.objects()
	for _, o := range objects {
		same := old[o.key()]
		if len(same) == 0 {
			list = append(list, o.whole(Added))
			continue
		}
		old[o.key()] = same[1:]
		if c, differs := changed(same[0], o); differs {
			list = append(list, c)
		}
	}
	for _, o := range before.objects() {
		left := old[o.key()]
		if len(left) > 0 {
			old[o.key()] = left[1:]
			list = append(list, left[0].whole(Deleted))
		}
	}
	settle(list, now)
	slices.SortStableFunc(list, func(a, b Change) int {
		return cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind))
	})
	for i := range list {
		list[i].Namespace = now.ID
	}
	return list
}

var kindOrders = []Kind{KindLink, KindAddress, KindRoute, KindPolicy, KindNeighbour, KindForwarding,
	KindSetting, KindTable, KindChain, KindSet, KindElement, KindRule}

func kindOrder(k Kind) int { return slices.Index(kindOrders, k) }

// Count returns the number of objects of a namespace that [Diff] compares, except derived ones.
func (n *Namespace) Count() (total int) {
	for _, o := range n.objects() {
		if !o.derived && o.kind != KindSetting {
			total++
		}
	}
	return total
}

// object is an object as text.
type object struct {
	kind       Kind
	name       string
	identity   string // more of the key, not for people
	properties []property
	label      string
	derived    bool
}

type property struct{ name, value string }

func (o object) key() string { return string(o.kind) + "\x00" + o.name + "\x00" + o.identity }

func (o object) text(which func(property) bool) string {
	var words []string
	for _, p := range o.properties {
		if p.value != "" && which(p) {
			words = append(words, strings.TrimSpace(p.name+" "+p.value))
		}
	}
	return strings.Join(words, ", ")
}

func (o object) change(a Action) Change {
	return Change{Action: a, Kind: o.kind, Object: o.name, Label: o.label, Derived: o.derived}
}

func (o object) whole(a Action) Change {
	c := o.change(a)
	text := o.text(func(property) bool { return true })
	if a == Added {
		c.After = text
	} else {
		c.Before = text
	}
	return c
}

// changed compares two states of an object.
func changed(old, now object) (c Change, differs bool) {
	value := func(list []property, name string) string {
		for _, p := range list {
			if p.name == name {
				return p.value
			}
		}
		return ""
	}
	c = now.change(Changed)
	c.Before = old.text(func(p property) bool { return value(now.properties, p.name) != p.value })
	c.After = now.text(func(p property) bool { return value(old.properties, p.name) != p.value })
	return c, c.Before != c.After
}

// settle marks changes that follow from others: settings of links that were added with the default,
// or deleted, and objects of tables that were added or deleted.
func settle(list []Change, now *Namespace) {
	whole := map[string]Action{} // links and tables
	for _, c := range list {
		if (c.Kind == KindLink || c.Kind == KindTable) && c.Action != Changed {
			whole[string(c.Kind)+c.Object] = c.Action
		}
	}
	for i := range list {
		c := &list[i]
		switch c.Kind {
		case KindSetting:
			link, general := settingLink(c.Object)
			action, ok := whole[string(KindLink)+link]
			if !ok || link == "" || action != c.Action {
				continue
			}
			value := now.Settings[general]
			c.Derived = action == Deleted || c.After == value
			if action == Added && !c.Derived {
				c.Action, c.Before = Changed, value
			}
		case KindChain, KindSet, KindElement, KindRule:
			words := strings.SplitN(c.Object, " ", 3)
			table := strings.Join(words[:min(2, len(words))], " ")
			if whole[string(KindTable)+table] == c.Action && c.Action != "" {
				c.Part = table
			}
		}
	}
}

// settingLink returns the link in the name of a sysctl, and the name of the default for new links.
func settingLink(name string) (link, general string) {
	for _, family := range []string{"net.ipv4.conf.", "net.ipv6.conf.", "net.ipv4.neigh.",
		"net.ipv6.neigh.", "net.mpls.conf."} {
		rest, ok := strings.CutPrefix(name, family)
		if !ok {
			continue
		}
		i := strings.LastIndexByte(rest, '.')
		if i > 0 && rest[:i] != "all" && rest[:i] != "default" {
			return rest[:i], family + "default" + rest[i:]
		}
	}
	return "", ""
}

// objects returns the configuration of a namespace as text.
func (n *Namespace) objects() (list []object) {
	list = append(list, n.linkObjects()...)
	list = append(list, n.addressObjects()...)
	list = append(list, n.routeObjects()...)
	for _, r := range n.Rules {
		// The kernel adds a rule with the first VRF and keeps it; the rule has a condition without field.
		derived := r.Protocol == unix.RTPROT_KERNEL && r.Other
		list = append(list, object{kind: KindPolicy, name: r.text(), derived: derived})
	}
	for _, x := range n.Neighbours {
		name := fmt.Sprintf("%v dev %s", x.Addr, n.linkName(x.Link))
		switch {
		case x.Proxy:
			list = append(list, object{kind: KindNeighbour, name: "proxy " + name})
		case x.State == "permanent":
			list = append(list, object{kind: KindNeighbour, name: name,
				properties: []property{{"MAC", x.MAC}}})
		}
	}
	for _, f := range n.Forwarding {
		if f.Static && !f.Local {
			name := fmt.Sprintf("%s dev %s", f.MAC, n.linkName(f.Link))
			if f.VLAN != 0 {
				name += fmt.Sprintf(" vlan %d", f.VLAN)
			}
			list = append(list, object{kind: KindForwarding, name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Settings)) {
		if name == "net.netfilter.nf_conntrack_count" {
			continue
		}
		list = append(list, object{kind: KindSetting, name: name,
			properties: []property{{"", n.Settings[name]}}})
	}
	return append(list, n.rulesetObjects()...)
}

// unless returns text, or nothing if the condition holds.
func unless(condition bool, text string) string {
	if condition {
		return ""
	}
	return text
}

func (n *Namespace) linkName(index int) string {
	if l := n.Link(index); l != nil {
		return l.Name
	}
	return fmt.Sprint("#", index)
}

func (n *Namespace) linkObjects() (list []object) {
	for i := range n.Links {
		l := &n.Links[i]
		state := "down"
		if l.Up() {
			state = "up"
		}
		o := object{kind: KindLink, name: l.Name, label: l.Alias, properties: []property{
			{"", l.Kind}, {"state", state}, {"MTU", fmt.Sprint(l.MTU)}, {"MAC", l.MAC},
			{"master", unless(l.Master == 0, n.linkName(l.Master))}, {"alias", l.Alias},
			{"altname", strings.Join(l.AltNames, " ")}, {"mode", l.Mode},
			{"VLAN", number(l.VLAN)}, {"table", number(l.VRF)}, {"VNI", number(l.VNI)},
			{"qdisc", unless(usualQdisc(l.Qdisc), l.Qdisc)},
		}}
		if l.Lower != 0 && l.LowerNSID == nil && l.Kind != "veth" {
			o.properties = append(o.properties, property{"parent", n.linkName(l.Lower)})
		}
		for _, f := range []string{"promisc", "allmulti", "noarp"} {
			// The kernel sets these flags of bridge ports by itself.
			if l.flag(f) && l.Port == nil && l.Bridge == nil {
				o.properties = append(o.properties, property{f, "on"})
			}
		}
		if b := l.Bridge; b != nil {
			o.properties = append(o.properties, property{"VLAN filtering", on(b.VLANFiltering)},
				property{"STP", on(b.STP)}, property{"VLANs", vlanText(b.VLANs)})
		}
		if p := l.Port; p != nil {
			o.properties = append(o.properties,
				property{"hairpin", on(p.Hairpin)}, property{"isolated", on(p.Isolated)},
				property{"learning", unless(p.Learning, "off")}, property{"flood", unless(p.Flood, "off")},
				property{"VLANs", vlanText(p.VLANs)})
		}
		list = append(list, o)
	}
	return list
}

// usualQdisc reports whether the kernel chooses a qdisc by itself.
func usualQdisc(kind string) bool {
	return slices.Contains([]string{"", "noqueue", "noop", "pfifo_fast", "fq_codel", "mq", "fq"}, kind)
}

func on(set bool) string { return unless(!set, "on") }

func number(n int) string { return unless(n == 0, fmt.Sprint(n)) }

func vlanText(list []VLAN) string {
	var words []string
	for _, v := range list {
		words = append(words, fmt.Sprint(v.ID, unless(!v.PVID, " PVID"), unless(!v.Untagged, " untagged")))
	}
	return strings.Join(words, " ")
}

func (n *Namespace) addressObjects() (list []object) {
	for _, a := range n.Addrs {
		var flags []string
		for _, f := range a.Flags {
			if f == "noprefixroute" {
				flags = append(flags, f)
			}
		}
		o := object{kind: KindAddress, name: fmt.Sprintf("%v dev %s", a.Prefix, n.linkName(a.Link)),
			properties: []property{{"scope", unless(a.Scope == "global", a.Scope)}, {"", strings.Join(flags, " ")}},
			derived:    a.Prefix.Addr().IsLinkLocalUnicast() && a.Prefix.Addr().Is6()}
		if a.Peer.IsValid() {
			o.properties = append(o.properties, property{"peer", a.Peer.String()})
		}
		list = append(list, o)
	}
	return list
}

func (n *Namespace) routeObjects() (list []object) {
	for _, r := range n.Routes {
		if r.Table == unix.RT_TABLE_LOCAL && r.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		o := object{kind: KindRoute, name: n.routeText(r), properties: []property{
			{"protocol", unless(r.Protocol == unix.RTPROT_KERNEL || r.Protocol == unix.RTPROT_BOOT, number(r.Protocol))},
			{"MTU", number(r.MTU)},
		}, derived: r.Protocol == unix.RTPROT_KERNEL}
		if r.PrefSrc.IsValid() {
			o.properties = append(o.properties, property{"src", r.PrefSrc.String()})
		}
		list = append(list, o)
	}
	return list
}

// routeText returns what identifies a route, as ip-route(8) writes it.
func (n *Namespace) routeText(r Route) string {
	var b strings.Builder
	if r.Type != "unicast" {
		b.WriteString(r.Type + " ")
	}
	if r.Dst.Bits() == 0 {
		b.WriteString("default")
		if r.Dst.Addr().Is6() {
			b.WriteString(" (IPv6)")
		}
	} else {
		b.WriteString(r.Dst.String())
	}
	for _, h := range r.Hops {
		if h.Via.IsValid() {
			fmt.Fprintf(&b, " via %v", h.Via)
		}
		if h.Link != 0 {
			fmt.Fprintf(&b, " dev %s", n.linkName(h.Link))
		}
	}
	if r.Src.IsValid() {
		fmt.Fprintf(&b, " from %v", r.Src)
	}
	if r.Table != unix.RT_TABLE_MAIN {
		fmt.Fprintf(&b, " table %d", r.Table)
	}
	const usual = 1024 // metric of routes of IPv6
	if r.Metric != 0 && (r.Metric != usual || !r.Dst.Addr().Is6()) {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	return b.String()
}

// text returns a rule as ip-rule(8) writes it.
func (r Rule) text() string {
	words := []string{fmt.Sprintf("%d:", r.Priority)}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if r.Family == "ipv6" {
		add("IPv6")
	}
	if r.Invert {
		add("not")
	}
	from := "all"
	if r.Src.IsValid() && r.Src != (netip.Prefix{}) {
		from = r.Src.String()
	}
	add("from %s", from)
	if r.Dst.IsValid() {
		add("to %v", r.Dst)
	}
	if r.Mark != 0 {
		add("fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.IIF != "" {
		add("iif %s", r.IIF)
	}
	if r.OIF != "" {
		add("oif %s", r.OIF)
	}
	if r.Action != "lookup" {
		add("%s", r.Action)
	}
	if r.Table != 0 {
		add("lookup %d", r.Table)
	}
	if r.Suppress >= 0 {
		add("suppress_prefixlength %d", r.Suppress)
	}
	if r.Other {
		add("(more conditions)")
	}
	return strings.Join(words, " ")
}
