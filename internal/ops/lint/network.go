package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// network is a file that holds a network, and what could be read of it.
type network struct {
	spot
	form    Form      // List or Single
	list    *cni.List // nil if it cannot be loaded
	err     error     // why
	plugins []*pluginObject
}

// pluginObject is the configuration of one plugin.
type pluginObject struct {
	spot
	typ, ipam      string
	def, allocator *plugin.Definition // nil if not built in, or not there
	wrongType      bool               // there are wrong JSON types, outside of its ipam section
	wrongIPAM      bool               // there are, inside
}

func definition(name string) *plugin.Definition {
	i := slices.IndexFunc(all.Plugins, func(d plugin.Definition) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &all.Plugins[i]
}

// file takes a file in.
func (c *checker) file(f File) {
	at := spot{file: f.Path, network: f.Network}
	if f.Form == Other {
		c.ignored(f, at)
		return
	}
	if f.Form == DropIn {
		c.dropIns = append(c.dropIns, f)
		return
	}
	if at.value = c.open(f, at); at.value == nil {
		return
	}
	at.network = at.value.get("name").text()
	n := &network{spot: at, form: f.Form}
	c.networks = append(c.networks, n)
	load := cni.ParseSingle
	if f.Form == List {
		load = cni.ParseList
	}
	n.list, n.err = load(f.Data)
	if f.Form == Single {
		n.plugins = []*pluginObject{object(at, at.value)}
		if n.list != nil && n.list.Version >= cni.V100 {
			c.add("single-form", at, "write a list: {\"cniVersion\": …, \"name\": …, \"plugins\": [{…}]} in a file that ends in .conflist",
				"the configuration of a single plugin is not part of CNI %v; runtimes still take it", n.list.Version)
		}
		return
	}
	c.listKeys(n)
	for _, element := range n.value.get("plugins").all() {
		n.plugins = append(n.plugins, object(at, element))
	}
}

// open parses a file, and says why if that is not possible.
func (c *checker) open(f File, at spot) *node {
	if f.Err != nil {
		c.add("read", at, "", "cannot be read: %v", f.Err)
		return nil
	}
	if err := syntaxError(f.Data); err != nil {
		c.syntax(f, at, err)
		return nil
	}
	doc := parse(f.Data)
	c.duplicates(at, doc, f.Form == List)
	return doc
}

func syntaxError(data []byte) error { return json.Unmarshal(data, new(json.RawMessage)) }

func (c *checker) syntax(f File, at spot, err error) {
	offset, hint := 0, ""
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		offset = max(0, int(s.Offset)-1)
	}
	before := bytes.TrimSpace(f.Data[:min(offset, len(f.Data))])
	rest := f.Data[min(offset, len(f.Data)):]
	switch {
	case len(bytes.TrimSpace(f.Data)) == 0:
		hint = "the file is empty"
	case bytes.HasPrefix(f.Data, []byte("\xef\xbb\xbf")):
		hint = "the file begins with a byte order mark: save it as UTF-8 without one"
	case bytes.HasPrefix(rest, []byte("/")) || bytes.HasPrefix(rest, []byte("#")):
		hint = "JSON has no comments"
	case len(rest) > 0 && strings.Contains("]}", string(rest[:1])) && bytes.HasSuffix(before, []byte(",")):
		hint = "JSON has no comma behind the last element"
	}
	at.value = &node{document: f.Data, offset: offset}
	c.add("syntax", at, hint, "%v", err)
}

// duplicates tells the keys that an object has twice. Those of a list are matched exactly, others in any case.
func (c *checker) duplicates(at spot, n *node, exactly bool) {
	for i, m := range n.members {
		for _, before := range n.members[:i] {
			if before.key == m.key || !exactly && strings.EqualFold(before.key, m.key) {
				d := at.at(m.value)
				d.key = m.name
				line, _ := before.name.position()
				c.add("duplicate-key", d, "remove one of them", "%q stands in line %d already; plugins see one of both", m.key, line)
				break
			}
		}
		c.duplicates(at, m.value, false)
	}
	for _, e := range n.elements {
		c.duplicates(at, e, false)
	}
}

func object(at spot, value *node) *pluginObject {
	p := &pluginObject{spot: at.at(value), typ: value.get("type").text(), ipam: value.path("ipam", "type").text()}
	p.plugin = p.typ
	p.def, p.allocator = definition(p.typ), definition(p.ipam)
	return p
}

// ignored tells of a file that looks as if a runtime should read it.
func (c *checker) ignored(f File, at spot) {
	doc := document(f.Data)
	if doc.get("plugins") == nil && doc.get("type") == nil {
		return
	}
	why, hint := "its name does not end in .conflist, .conf or .json", ""
	switch ext := filepath.Ext(f.Path); {
	case f.Network != "":
		why, hint = "drop-ins end in .conf", "rename it to "+strings.TrimSuffix(filepath.Base(f.Path), ext)+".conf"
	case forms[strings.ToLower(ext)] != Other:
		hint = "the extension has to be in lower case: " + strings.ToLower(ext)
	case forms[filepath.Ext(strings.TrimSuffix(f.Path, ext))] != Other:
		hint = "if it is a copy that nobody needs, move it elsewhere"
	}
	c.add("ignored-file", at, hint, "looks like a configuration, but no runtime reads it: %s", why)
}

var listKeys = []string{"cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "plugins"}

// listKeys tells of keys that look like those of a list but are not, and of those of a plugin.
func (c *checker) listKeys(n *network) {
	for _, m := range n.value.members {
		if slices.Contains(listKeys, m.key) || strings.HasPrefix(m.key, "_") || strings.HasPrefix(m.key, "$") {
			continue
		}
		at := n.at(m.value)
		at.key = m.name
		hint := "keys of the list are not passed on; what is meant for a plugin stands in its object"
		if near := text.Nearest(m.key, listKeys); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		for _, key := range listKeys {
			if strings.EqualFold(key, m.key) {
				hint = fmt.Sprintf("keys of the list are matched exactly: %q", key)
			}
		}
		c.add("list-key", at, hint, "nobody reads the key %q of a list", m.key)
	}
}

var (
	element = regexp.MustCompile(`plugins\[([0-9]+)\]`)
	words   = regexp.MustCompile(`\w+`)
)

// blame finds the value that an error speaks of: the plugin whose index it has, in it the text that it quotes, or else
// the key that it names. It is for pointing at, not for deciding.
func (s spot) blame(err error) spot {
	message := cni.AsError(err).Msg
	value := s.value
	if m := element.FindStringSubmatch(message); m != nil {
		i, _ := strconv.Atoi(m[1])
		value = value.get("plugins").element(i)
	}
	quoted := value.find(func(v *node) bool {
		t := v.text()
		return len(t) > 1 && strings.Contains(message, strconv.Quote(t))
	})
	if quoted != nil {
		return s.at(quoted)
	}
	named := words.FindAllString(message, -1)
	for _, m := range slices.Concat(value.keys(), value.get("ipam").keys()) {
		if slices.Contains(named, m.key) {
			return s.at(m.value)
		}
	}
	return s.at(value)
}
