package testnet

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Snapshot returns the state of namespaces and directories as text, one fact per line. It includes
// links with their configuration and VLANs, traffic control, addresses, routes of all tables,
// policy rules, the nftables ruleset, and the settings below /proc/sys/net, without the neighbour
// settings of single links; of directories, each path with mode and content. It omits state that
// changes by itself: counters and timers, consequences of the carrier, link-local addresses and the
// routes that the kernel derives from IPv6 addresses. Two snapshots are equal if nothing else has
// changed.
func Snapshot(t testing.TB, spaces []*Namespace, dirs ...string) string {
	t.Helper()
	return (&snapshot{withSettings: true}).take(t, spaces, dirs)
}

// Objects is like [Snapshot] without the settings below /proc/sys/net, which are most of its work.
func Objects(t testing.TB, spaces []*Namespace, dirs ...string) string {
	t.Helper()
	return new(snapshot).take(t, spaces, dirs)
}

// WithoutSettings converts the text of Snapshot to the text of Objects.
func WithoutSettings(snapshot string) string {
	lines := strings.Split(snapshot, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		_, fact, _ := strings.Cut(line, " ") // after the namespace
		return strings.HasPrefix(fact, "sysctl ")
	}), "\n")
}

func (s *snapshot) take(t testing.TB, spaces []*Namespace, dirs []string) string {
	t.Helper()
	for _, n := range spaces {
		s.space = n.Name
		if err := s.namespace(n); err != nil {
			t.Fatal(err)
		}
	}
	s.space = ""
	for _, dir := range dirs {
		if err := s.dir(dir); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(s.lines)
	return strings.Join(s.lines, "\n")
}

// Diff returns the lines that are in only one of two snapshots: "-" marks lines of before, "+"
// lines of after. It is empty if the snapshots are equal.
func Diff(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out strings.Builder
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			fmt.Fprintln(&out, "-", a[0])
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			fmt.Fprintln(&out, "+", b[0])
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return out.String()
}

type snapshot struct {
	withSettings bool
	space        string
	lines        []string
}

func (s *snapshot) add(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if s.space != "" {
		line = s.space + " " + line
	}
	s.lines = append(s.lines, line)
}

func (s *snapshot) namespace(n *Namespace) error {
	if err := s.objects(n); err != nil {
		return err
	}
	there, err := presentIn(n)
	if err != nil {
		return err
	}
	if there.shaping {
		lines, err := Shaping(n)
		if err != nil {
			return err
		}
		for _, line := range lines {
			s.add("%s", line)
		}
	}
	if !there.rules6 {
		s.rules("-6", usualRules6())
	} else {
		var rules []object
		if err := read(n, []any{&rules}, "", "ip", "-j", "-d", "-6", "rule", "show"); err != nil {
			return err
		}
		s.rules("-6", rules)
	}
	if there.tables {
		if err := s.ruleset(n); err != nil {
			return err
		}
	}
	if !s.withSettings {
		return nil
	}
	return s.settings(n)
}

type object = map[string]any

// read decodes the JSON output of a tool, one value after the other.
func read(n *Namespace, values []any, stdin, name string, args ...string) error {
	out, err := whole(func() (string, error) { return n.Output(stdin, name, args...) })
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(out))
	for _, v := range values {
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("output of %s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// whole repeats a listing of ip, bridge or tc until the kernel answers it in one piece. Until then
// the tool prints a warning and an answer that may lack objects: another change, such as the end of
// a namespace that the kernel removes in the background, came between two parts of the answer.
func whole(list func() (string, error)) (string, error) {
	for {
		out, err := list()
		if err != nil || !strings.Contains(out, "Dump was interrupted") {
			return out, err
		}
	}
}

// byItself lists the keys in the output of ip for values that change without any action, or follow
// from the carrier or from ports.
var byItself = []string{
	"operstate", "tso_max_size", "tso_max_segs", "valid_life_time", "preferred_life_time",
	"tentative", "optimistic", "expires", "pref",
	"bridge_id", "root_id", "root_port", "root_path_cost", "topology_change",
	"topology_change_detected", "hello_timer",
	"tcn_timer", "topology_change_timer", "gc_timer", "hold_timer", "message_age_timer",
	"forward_delay_timer",
	"state", "designated_port", "designated_cost", "topology_change_ack", "config_pending",
}

// objects adds the output of ip, without the IPv6 rules, and the VLANs of bridges.
func (s *snapshot) objects(n *Namespace) error {
	var links, routes, rules []object
	const all = "address show\nroute show table all\nrule show\n" // for one process
	lists := []any{&links, &routes, &rules}
	if err := read(n, lists, all, "ip", "-j", "-d", "-batch", "-"); err != nil {
		return err
	}
	s.routes(routes)
	s.rules("-4", rules)
	if s.links(links) {
		return s.vlans(n)
	}
	return nil
}

// links reports whether there is a bridge.
func (s *snapshot) links(links []object) (bridge bool) {
	for _, l := range links {
		info, _ := l["linkinfo"].(object)
		bridge = bridge || info["info_kind"] == "bridge"
		name := l["ifname"]
		l["flags"] = slices.DeleteFunc(strs(l["flags"]), func(f string) bool {
			return slices.Contains([]string{"LOWER_UP", "NO-CARRIER", "M-DOWN", "DORMANT"}, f)
		})
		// The value depends on whether the link has ever been up.
		if q := l["qdisc"]; q == "noop" || q == "noqueue" {
			delete(l, "qdisc")
		}
		addrs, _ := l["addr_info"].([]any)
		delete(l, "addr_info")
		s.flatten(fmt.Sprintf("link %s", name), l)
		for _, a := range addrs {
			if a := a.(object); a["scope"] != "link" || a["family"] != "inet6" {
				s.add("addr dev %s %s", name, text(a))
			}
		}
	}
	return bridge
}

// vlans adds the VLANs of the ports of bridges.
func (s *snapshot) vlans(n *Namespace) error {
	var ports []struct {
		IfName string
		VLANs  []object
	}
	if err := read(n, []any{&ports}, "", "bridge", "-j", "vlan", "show"); err != nil {
		return err
	}
	for _, p := range ports {
		for _, v := range p.VLANs {
			s.add("vlan dev %s %s", p.IfName, text(v))
		}
	}
	return nil
}

// flatten adds a line for each leaf of an object, so that a difference shows exactly the changed
// values.
func (s *snapshot) flatten(path string, v any) {
	o, ok := v.(object)
	if !ok {
		s.add("%s %s", path, text(v))
		return
	}
	for key, v := range o {
		if !slices.Contains(byItself, key) {
			s.flatten(path+" "+key, v)
		}
	}
}

func (s *snapshot) routes(routes []object) {
	for _, r := range routes {
		family := "-4"
		if _, ok := r["pref"]; ok { // every IPv6 route has a preference
			family = "-6"
		}
		if !derived(r) {
			s.add("route %s %s", family, text(r))
		}
	}
}

func (s *snapshot) rules(family string, rules []object) {
	for _, r := range rules {
		s.add("rule %s %s", family, text(r))
	}
}

// usualRules6 are the rules of every namespace, as ip shows them.
func usualRules6() []object {
	return []object{
		{"priority": 0, "protocol": "kernel", "src": "all", "table": "local"},
		{"priority": 32766, "protocol": "kernel", "src": "all", "table": "main"},
	}
}

// derived reports whether the kernel created a route from the state of a link or an IPv6 address,
// which it may do later. It removes the flags of route, which follow from the carrier.
func derived(route object) bool {
	delete(route, "flags")
	dst, _ := route["dst"].(string)
	dst, _, _ = strings.Cut(dst, "/")
	addr, err := netip.ParseAddr(dst)
	if err != nil || !addr.Is6() || route["protocol"] != "kernel" {
		return false
	}
	return route["type"] != "unicast" || addr.IsLinkLocalUnicast()
}

func (s *snapshot) ruleset(n *Namespace) error {
	var ruleset struct{ Nftables []object }
	if err := read(n, []any{&ruleset}, "", "nft", "--json", "--stateless", "list",
		"ruleset"); err != nil {
		return err
	}
	position := make(map[string]int) // of a rule in its chain
	for _, o := range ruleset.Nftables {
		for kind, v := range o {
			v, _ := v.(object)
			if kind == "metainfo" {
				continue
			}
			delete(v, "handle")
			name := fmt.Sprintf("nft %s %s %s %s", kind, v["family"], v["table"], v["name"])
			if kind == "rule" {
				name = fmt.Sprintf("nft rule %s %s %s", v["family"], v["table"], v["chain"])
				position[name]++
				name = fmt.Sprintf("%s %d", name, position[name])
			}
			elements, _ := v["elem"].([]any)
			delete(v, "elem")
			for _, e := range elements {
				s.add("%s element %s", name, text(e))
			}
			s.add("%s %s", name, text(v))
		}
	}
	return nil
}

func (s *snapshot) dir(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf(" %q", b)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			content = " -> " + target
		}
		s.add("file %s %s%s", path, info.Mode(), content)
		return nil
	})
}

// text returns canonical JSON without the values that change by themselves.
func text(v any) string {
	if o, ok := v.(object); ok {
		for _, key := range byItself {
			delete(o, key)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // v was decoded from JSON
	}
	return string(b)
}

func strs(v any) []string {
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i, e := range list {
		out[i], _ = e.(string)
	}
	return out
}
