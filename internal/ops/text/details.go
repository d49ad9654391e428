package text

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/inspect"
)

// Details writes all that is known of an attachment.
func Details(w io.Writer, d *inspect.Details) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	optional := func(what, value string) {
		if value != "" {
			line(what, "%s", value)
		}
	}
	line("attachment", "%s/%s/%s", d.Network, d.Container, d.IfName)
	line("state", "%s", d.State)
	line("id", "%s", d.ID)
	line("runtime", "%s", d.Runtime)
	optional("source", d.Source)
	optional("namespace", d.Netns)
	line("created", "%s", d.Created.Format(time.RFC3339))
	for _, i := range d.Interfaces {
		line("interface", "%s", interfaceText(i))
	}
	for _, a := range d.Addresses {
		line("address", "%s%s%s", a.Address, with(", gateway ", a.Gateway), mark(a.Recorded, a.Live))
	}
	for _, r := range d.Routes {
		table := ""
		if r.Table != 0 {
			table = fmt.Sprintf(" table %d", r.Table)
		}
		line("route", "%s%s%s%s", r.Dst, with(" via ", r.Gateway), table, mark(r.Recorded, r.Live))
	}
	optional("nameserver", strings.Join(d.DNS.Nameservers, " "))
	optional("domain", d.DNS.Domain)
	optional("search", strings.Join(d.DNS.Search, " "))
	optional("options", strings.Join(d.DNS.Options, " "))
	for _, p := range d.Ports {
		line("port", "%s%s%s", p.Mapping, with(", ", p.Backend), mark(p.Recorded, p.Live))
	}
	line("version", "%s", d.CNIVersion)
	optional("args", d.Args)
	for _, name := range slices.Sorted(maps.Keys(d.Capabilities)) {
		line("capability", "%s=%s", name, d.Capabilities[name])
	}
	for _, p := range d.Plugins {
		line("plugin", "%s %s", p.Type, compact(p.Stdin))
	}
	for _, text := range d.Differences {
		line("differs", "%s", text)
	}
	return t.Flush()
}

func interfaceText(i inspect.Interface) string {
	s := fmt.Sprintf("%s, %s", i.Name, i.Place)
	if i.Kind != "" {
		s += ", " + i.Kind
	}
	s += with(", MAC ", i.MAC)
	if i.MTU != 0 {
		s += fmt.Sprintf(", MTU %d", i.MTU)
	}
	s += with(", port of ", i.Master)
	if i.Live && !i.Up {
		s += ", down"
	}
	if !i.Live {
		s += ", missing"
	}
	return s
}

func with(prefix, value string) string {
	if value == "" {
		return ""
	}
	return prefix + value
}

// mark says where the record and the kernel differ.
func mark(recorded, live bool) string {
	switch {
	case !live:
		return ", missing"
	case !recorded:
		return ", not recorded"
	}
	return ""
}

func compact(raw json.RawMessage) string { return strings.Join(strings.Fields(string(raw)), " ") }
