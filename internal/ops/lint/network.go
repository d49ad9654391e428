package lint

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// configured is a file that defines a network, with its readable parts.
type configured struct {
	subject
	config.File
	list    *cni.List       // as it runs; nil if it cannot be loaded
	plugins []*pluginObject // drop-ins last
}

// pluginObject is the configuration of one plugin.
type pluginObject struct {
	subject
	typ, ipam      string
	def, allocator *plugin.Definition // nil if not built in, or absent
	wrongType      bool               // a JSON type is wrong outside the ipam section
	wrongIPAM      bool               // a JSON type is wrong in the ipam section
}

func object(at subject, value *document.Node) *pluginObject {
	p := &pluginObject{
		subject: at.at(value),
		typ:     value.Get("type").Text(),
		ipam:    value.Get("ipam", "type").Text(),
	}
	p.plugin = p.typ
	p.def, p.allocator = all.Find(p.typ), all.Find(p.ipam)
	return p
}

// known returns the names of Tenon's plugins.
func known() []string {
	var names []string
	for _, d := range all.Described() {
		names = append(names, d.Name)
	}
	return names
}

// network checks one network.
func (c *checker) network(n *configured) {
	c.version(n)
	c.negotiate(n)
	pools := map[string]*pluginObject{}
	for i, p := range n.plugins {
		c.order(n, i)
		c.pluginObject(n, p, i)
		if p.ipam != hostLocal {
			continue
		}
		if dir := p.value.Get("ipam", "dataDir").Text(); pools[dir] == nil {
			pools[dir] = p
		} else {
			c.add("shared-pool", p.at(p.value.Get("ipam")), "give one of them another dataDir",
				"%s shares its reservations with %s, but an attachment can have only one reservation there", p.typ, pools[dir].typ)
		}
	}
	reported := slices.ContainsFunc(
		n.plugins,
		func(p *pluginObject) bool { return p.wrongType || p.wrongIPAM },
	)
	if err := complaint(n.File); err != nil && !reported {
		e := cni.AsError(err)
		at := n.blame(err)
		c.add(
			"list",
			at,
			cmp.Or(e.Details, typeHint(at.value, listKeys()[at.value.Label()])),
			"%s",
			e.Msg,
		)
	}
	if n.Network != nil {
		c.required(n)
	}
}

// blame returns the subject of an error: the value at its JSON pointer, or the value that its
// message names. It is a guess for the position of a finding; decisions must not depend on it.
func (s subject) blame(err error) subject {
	if pointer := cni.Pointer(err); pointer != "" {
		return s.at(s.value.Resolve(pointer))
	}
	if v := s.named(cni.AsError(err).Msg); v != nil {
		return s.at(v)
	}
	return s
}

// named returns the value that a message quotes, or the value of the key that it names; nil if
// there is none.
func (s subject) named(message string) *document.Node {
	quoted := s.value.Find(func(v *document.Node) bool {
		t := v.Text()
		return len(t) > 1 &&
			(strings.Contains(message, strconv.Quote(t)) || strings.Contains(message, "'"+t+"'"))
	})
	if quoted != nil {
		return quoted
	}
	words := strings.FieldsFunc(
		message,
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' },
	)
	for _, m := range slices.Concat(s.value.Keys(), s.value.Get("ipam").Keys()) {
		if slices.Contains(words, m.Key) {
			return m.Value
		}
	}
	return nil
}
