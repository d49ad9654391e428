package docs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/plugin"
)

// page is the reference of a plugin: its doc.md with a table of the options after the introduction.
// Later sections of doc.md are the differences from upstream, details and examples.
func page(d plugin.Definition, s *plugin.Schema) string {
	intro, rest := d.Doc, ""
	for _, section := range []string{"\n## Differences from upstream\n", "\n## Examples\n"} {
		if i := strings.Index(d.Doc, section); i >= 0 {
			intro, rest = d.Doc[:i], d.Doc[i:]
			break
		}
	}
	var b strings.Builder
	b.WriteString("<!-- Made by make golden from plugins/*/doc.md and the comments of the configuration type. -->\n\n")
	b.WriteString(strings.TrimSpace(intro) + "\n\n")
	if rows := options(s, ""); hasOwn(s) {
		b.WriteString("## Options\n\n| key | type | default | meaning |\n|---|---|---|---|\n")
		b.WriteString(strings.Join(rows, ""))
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "JSON Schema: [%s.json](../schema/%s.json)\n%s", d.Name, d.Name, rest)
	return b.String()
}

// index lists the plugins by what they do.
func index(plugins []plugin.Definition) string {
	var b strings.Builder
	b.WriteString("<!-- Made by make golden. -->\n\n# Plugins\n")
	for _, group := range []struct {
		title string
		roles []plugin.Role
	}{
		{"Interface plugins", []plugin.Role{plugin.RoleInterface, plugin.RoleEither}},
		{"IPAM plugins", []plugin.Role{plugin.RoleIPAM}},
		{"Chained plugins", []plugin.Role{plugin.RoleChained}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| plugin | |\n|---|---|\n", group.title)
		for _, d := range plugins {
			if slices.Contains(group.roles, d.Role) {
				fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", d.Name, d.Name, d.About)
			}
		}
	}
	return b.String()
}

// general is the prefix of keys with the same meaning for every plugin; pages leave them out.
const general = module + "plugin.Common."

// hasOwn reports whether a configuration has keys of its own.
func hasOwn(s *plugin.Schema) bool {
	return slices.ContainsFunc(s.Order, func(key string) bool {
		field := s.Properties[key].Field
		return field != "" && !strings.HasPrefix(field, general)
	})
}

// options returns the rows for the keys of an object and of its nested objects.
func options(s *plugin.Schema, prefix string) []string {
	var rows []string
	for _, key := range s.Order {
		p := s.Properties[key]
		if p.Field == "" || strings.HasPrefix(p.Field, general) && key != "dns" && key != "ipam" {
			continue
		}
		if key == "ipam" && p.Field != general+"IPAM" { // the section of an IPAM plugin
			rows = append(rows, options(p, prefix+key+".")...)
			continue
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", prefix+key, kind(p, false), fallback(p), cell(p.Description)))
		if strings.HasPrefix(p.Field, general) {
			continue
		}
		inner, path := p, prefix+key
		for inner.Items != nil {
			inner, path = inner.Items, path+"[]"
		}
		rows = append(rows, options(inner, path+".")...)
	}
	return rows
}

// kind returns the type in words.
func kind(s *plugin.Schema, plural bool) string {
	name := s.Type
	switch {
	case s.Enum != nil:
		return "`" + strings.Join(s.Enum, "` or `") + "`"
	case s.Items != nil:
		name = "array of " + kind(s.Items, true)
		if plural {
			name = "arrays of " + kind(s.Items, true)
		}
	case name == "":
		name = "anything"
	case plural:
		name += "s"
	}
	if s.Minimum != nil && s.Maximum != nil {
		name += fmt.Sprintf(", %d to %d", *s.Minimum, *s.Maximum)
	}
	return name
}

func fallback(s *plugin.Schema) string {
	switch {
	case s.Default != nil:
		return fmt.Sprintf("`%s`", s.Default)
	case s.Type == "boolean" && !s.Optional:
		return "`false`"
	}
	return ""
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
