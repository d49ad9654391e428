// Package lint finds mistakes and probable mistakes in network configurations before a runtime uses
// them. Package config decides how each file is used, and reports errors of files that it cannot
// load.
//
// The package does not repeat the rules of plugins: keys and JSON types come from the schema of a
// configuration, limits and contradictions from the plugin's own validation. For plugins that are
// not built in, it checks the rules for all plugins.
package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/document"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/network/config"
)

// Severity is the severity of a finding.
type Severity uint8

// The severities.
const (
	Info    Severity = iota + 1 // good to know
	Warning                     // works, but probably not as intended
	Error                       // the network, or a container on it, cannot be set up
)

// String is "info", "warning" or "error".
func (s Severity) String() string { return [...]string{"?", "info", "warning", "error"}[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is a violation of a rule.
type Finding struct {
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"` // see [Rules]
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // from 1; 0: the whole file
	Column   int      `json:"column,omitempty"`
	Pointer  string   `json:"pointer,omitempty"` // JSON Pointer of the value; empty: the document
	Network  string   `json:"network,omitempty"`
	Plugin   string   `json:"plugin,omitempty"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // what to do
}

// String formats the finding as compilers format errors.
func (f Finding) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
	}
	return fmt.Sprintf("%s: %s: %s [%s]", place, f.Severity, f.Message, f.Rule)
}

// Rule is one kind of finding.
type Rule struct {
	ID       string
	Severity Severity
	Title    string
}

// Rules lists all rules, grouped by subject: files, lists, chains, plugins, addresses, policy.
var Rules = []Rule{
	{"read", Error, "the file cannot be read"},
	{"syntax", Error, "the file is not JSON"},
	{"ignored-file", Warning, "runtimes ignore the file"},
	{"duplicate-name", Warning, "an earlier file defines the same network"},
	{"list", Error, "the list cannot be loaded"},
	{"list-key", Warning, "a key of the list is unknown"},
	{"duplicate-key", Warning, "an object repeats a key; the last one counts"},
	{"no-version", Warning, "without cniVersion, the oldest version applies"},
	{"version-feature", Warning, "the CNI version lacks the feature"},
	{"single-form", Info, "the form of a single plugin is deprecated"},
	{"chain-order", Error, "the plugin is in the wrong place"},
	{"repeated-plugin", Warning, "a list repeats a plugin"},
	{"missing-plugin", Error, "the plugin is not installed"},
	{"version-skew", Error, "plugins do not support the version of the network"},
	{"older-version", Info, "the network runs with an older version than it offers"},
	{"unknown-key", Warning, "the plugin does not know the key"},
	{"key-case", Info, "the key differs in case"},
	{"type", Error, "the value has the wrong JSON type"},
	{"refused", Error, "the plugin refuses the configuration"},
	{"host-choice", Info, "the plugin decides by the state of this host"},
	{"reserved-key", Warning, "the key belongs to the runtime"},
	{"unknown-capability", Warning, "no plugin supports the capability"},
	{"needs-ipam", Warning, "the option has no effect without addresses"},
	{"ipam-type", Warning, "an ipam section without type has no effect"},
	{"range", Error, "nothing can be allocated from the range"},
	{"range-gateway", Warning, "the gateway lies outside its subnet"},
	{"range-empty", Warning, "the range contains no address except the gateway"},
	{"range-sets", Info, "each container gets an address from each set"},
	{"shared-pool", Error, "two plugins of a network share their reservations"},
	{"range-overlap", Warning, "two networks allocate the same addresses"},
	{"shared-bridge", Warning, "two networks give a bridge different addresses"},
	{"policy", Error, "the policy cannot be used"},
	{"policy-plugin", Error, "a network lacks a plugin that the policy requires"},
	{"policy-executable", Error, "the policy does not allow the plugin's binary"},
	{"policy-network", Warning, "the policy names a network that does not exist"},
}

func severity(rule string) Severity {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return r.ID == rule })
	return Rules[i].Severity
}

// Ask returns the versions that the executable file of a plugin supports. It returns an error if
// the file does not exist or does not answer.
type Ask func(typ string) ([]string, error)

// Check checks the files of one directory. It calls ask once for each plugin that they name; if ask
// is nil, Check assumes nothing about executable files. Findings are in the order of files and
// places.
func Check(catalog *config.Catalog, ask Ask) []Finding {
	c := checker{catalog: catalog, ask: ask, asked: map[string]executable{}}
	for _, f := range catalog.Candidates() {
		c.candidate(f)
	}
	for _, f := range catalog.Files {
		c.file(f)
	}
	for _, n := range c.networks {
		c.network(n)
	}
	c.directory()
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return c.found
}

// checker collects findings.
type checker struct {
	catalog  *config.Catalog
	ask      Ask
	asked    map[string]executable
	networks []*configured // in the order of lookups
	found    []Finding
}

// subject is the place and the plugin of a finding.
type subject struct {
	file    string
	value   *document.Node // nil: the file
	key     *document.Node // of the value, to which the finding points instead; may be nil
	network string
	plugin  string
}

// at returns the subject of the same plugin with another value.
func (s subject) at(value *document.Node) subject {
	s.value, s.key = value, nil
	return s
}

// atKey returns the subject of the same plugin for a member of an object; findings point at its
// key.
func (s subject) atKey(m document.Member) subject {
	s.value, s.key = m.Value, m.Name
	return s
}

func (c *checker) add(rule string, at subject, hint, format string, args ...any) {
	f := Finding{
		Severity: severity(rule), Rule: rule, File: at.file, Network: at.network, Plugin: at.plugin,
		Message: fmt.Sprintf(format, args...), Hint: hint,
	}
	if at.value != nil {
		place := at.value
		if at.key != nil {
			place = at.key
		}
		f.Line, f.Column = place.Position()
		f.Pointer = at.value.Pointer
	}
	c.found = append(c.found, f)
}

// nearest returns a hint with the candidate that is nearest to a name, or "".
func nearest(name string, candidates []string) string {
	if near := spelling.Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// typeHint returns a hint that turns a value into one of a JSON type, or "" if there is no obvious
// one.
func typeHint(n *document.Node, typ string) string {
	text := n.Text()
	parsed := document.Parse([]byte(text)).Kind
	switch {
	case typ == "" || typ == string(n.Kind):
	case typ == string(document.Array):
		return "add a pair of brackets: [" + compact(n.Raw) + "]"
	case typ == string(document.String) && (n.Kind == document.Number || n.Kind == document.Boolean):
		return fmt.Sprintf("add quotes: %q", n.Raw)
	case typ == string(parsed), typ == "integer" && parsed == document.Number:
		return "remove the quotes: " + text
	}
	return ""
}

// compact shortens a value for messages.
func compact(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
