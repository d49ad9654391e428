package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
	"github.com/tenon-cni/tenon/network/config"
)

// candidate adds a file that defines a network.
func (c *checker) candidate(f config.File) {
	at := subject{file: f.Path, network: f.Name}
	if at.value = c.open(f, at); at.value == nil {
		return
	}
	n := &configured{subject: at, File: f}
	c.networks = append(c.networks, n)
	if f.Network != nil {
		n.list = f.Network.List
	}
	if f.Kind == config.SingleFile {
		n.plugins = []*pluginObject{object(at, at.value)}
		if n.list != nil && n.list.Version >= cni.V100 {
			c.add(
				"single-form",
				at,
				"write a list: {\"cniVersion\": …, \"name\": …, \"plugins\": [{…}]} in a file that ends in .conflist",
				"the configuration of a single plugin is not part of CNI %v; runtimes still accept it",
				n.list.Version,
			)
		}
		return
	}
	c.unknownKeys(n)
	for _, element := range n.value.Get("plugins").All() {
		n.plugins = append(n.plugins, object(at, element))
	}
}

// file checks a file that does not define a network.
func (c *checker) file(f config.File) {
	at := subject{file: f.Path, network: f.Name}
	switch {
	case f.Kind == config.ListFile || f.Kind == config.SingleFile: // see candidate
	case c.isPolicy(f):
		c.policy(f, at)
	case f.Kind == config.DropInFile:
		c.dropIn(f, at)
	case f.Err != nil:
		c.open(f, at)
	default:
		c.ignored(f, at)
	}
}

// open parses a file. If that fails, it reports the error and returns nil.
func (c *checker) open(f config.File, at subject) *document.Node {
	if f.Content == nil {
		c.add("read", at, "", "cannot be read: %v", complaint(f))
		return nil
	}
	if err := syntaxError(f.Content); err != nil {
		c.syntax(f, at, err)
		return nil
	}
	doc := document.Parse(f.Content)
	c.duplicates(at, doc, f.Kind == config.ListFile || c.isPolicy(f))
	return doc
}

// complaint returns the error of a file, but not errors of its drop-ins.
func complaint(f config.File) error {
	if e := (*config.FileError)(nil); errors.As(f.Err, &e) &&
		!errors.As(e.Err, new(*config.FileError)) {
		return e.Err
	}
	return nil
}

func syntaxError(data []byte) error { return json.Unmarshal(data, new(json.RawMessage)) }

func (c *checker) syntax(f config.File, at subject, err error) {
	offset, hint := 0, ""
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		offset = max(0, int(s.Offset)-1)
	}
	before := bytes.TrimSpace(f.Content[:min(offset, len(f.Content))])
	rest := f.Content[min(offset, len(f.Content)):]
	switch {
	case len(bytes.TrimSpace(f.Content)) == 0:
		hint = "the file is empty"
	case bytes.HasPrefix(f.Content, []byte("\xef\xbb\xbf")):
		hint = "the file begins with a byte order mark: save it as UTF-8 without a byte order mark"
	case bytes.HasPrefix(rest, []byte("/")) || bytes.HasPrefix(rest, []byte("#")):
		hint = "remove the comment: JSON does not allow comments"
	case len(rest) > 0 && strings.Contains("]}", string(rest[:1])) && bytes.HasSuffix(before, []byte(",")):
		hint = "remove the comma after the last element"
	case offset >= len(bytes.TrimRight(f.Content, " \t\r\n"))-1 && len(rest) <= 1:
		hint = "the file ends early: a closing bracket or quote is missing"
	}
	at.value = document.At(f.Content, offset)
	c.add("syntax", at, hint, "%v", err)
}

// duplicates reports repeated keys of objects. It compares keys exactly or, as plugins do, ignoring
// case.
func (c *checker) duplicates(at subject, n *document.Node, exactly bool) {
	for i, m := range n.Members {
		for _, before := range n.Members[:i] {
			if before.Key == m.Key || !exactly && strings.EqualFold(before.Key, m.Key) {
				line, _ := before.Name.Position()
				c.add(
					"duplicate-key",
					at.atKey(m),
					"remove one of them",
					"%q also appears in line %d; plugins use only one of them",
					m.Key,
					line,
				)
				break
			}
		}
		c.duplicates(at, m.Value, false)
	}
	for _, e := range n.Elements {
		c.duplicates(at, e, false)
	}
}

// dropIn adds a drop-in to its network.
func (c *checker) dropIn(f config.File, at subject) {
	switch f.Use {
	case config.Ignored:
		c.add(
			"ignored-file",
			at,
			"name the directory of drop-ins after a network that is a list (.conflist)",
			"ignored: no list defines network %q",
			f.Name,
		)
		return
	case config.Suppressed:
		c.add("ignored-file", at, "", "ignored: network %s sets loadOnlyInlinedPlugins", f.Name)
		return
	}
	if at.value = c.open(f, at); at.value == nil {
		return
	}
	if err := complaint(f); err != nil {
		e := cni.AsError(err)
		c.add("list", at.blame(err), e.Details, "%s; network %s cannot be loaded", e.Msg, f.Name)
		return
	}
	if i := slices.IndexFunc(c.networks, func(n *configured) bool { return n.Kind == config.ListFile && n.Name == f.Name }); i >= 0 {
		c.networks[i].plugins = append(c.networks[i].plugins, object(at, at.value))
	}
}

// ignored reports an unused file that looks like a configuration.
func (c *checker) ignored(f config.File, at subject) {
	if syntaxError(f.Content) != nil {
		return
	}
	if doc := document.Parse(f.Content); doc.Get("plugins") == nil && doc.Get("type") == nil {
		return
	}
	why, hint := "its name does not end in .conflist, .conf or .json", ""
	ext := filepath.Ext(f.Path)
	switch inner := filepath.Ext(strings.TrimSuffix(f.Path, ext)); {
	case f.Name != "":
		why, hint = "its name does not end in .conf", "rename it to "+strings.TrimSuffix(
			filepath.Base(f.Path),
			ext,
		)+".conf"
	case slices.Contains(extensions, strings.ToLower(ext)):
		hint = "use a lower-case extension: " + strings.ToLower(ext)
	case slices.Contains(extensions, inner):
		hint = "if it is a backup, move it to another directory"
	}
	c.add("ignored-file", at, hint, "looks like a configuration, but runtimes ignore it: %s", why)
}

var extensions = []string{".conflist", ".conf", ".json"}

// listKeys returns the keys of a list with their JSON types.
func listKeys() map[string]string {
	return map[string]string{
		"cniVersion": "string", "cniVersions": "array", "name": "string", "plugins": "array",
		"disableCheck": "boolean", "disableGC": "boolean", "loadOnlyInlinedPlugins": "boolean",
	}
}

// unknownKeys reports unknown keys of a list.
func (c *checker) unknownKeys(n *configured) {
	known := listKeys()
	for _, m := range n.value.Members {
		if known[m.Key] != "" || strings.HasPrefix(m.Key, "nerdctl") ||
			strings.HasPrefix(m.Key, "_") ||
			strings.HasPrefix(m.Key, "$") {
			continue
		}
		hint := cmp.Or(nearest(m.Key, slices.Sorted(maps.Keys(known))),
			"plugins do not see the keys of the list; move options of a plugin into its object")
		for key := range known {
			if strings.EqualFold(key, m.Key) {
				hint = fmt.Sprintf("keys of the list are case-sensitive: use %q", key)
			}
		}
		c.add("list-key", n.atKey(m), hint, "unknown key %q in a list", m.Key)
	}
}
