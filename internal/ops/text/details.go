package text

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// Details writes everything that is known about an attachment.
func Details(w io.Writer, d *inspect.Details) error {
	f := newFacts(w)
	f.line("attachment", "%s/%s/%s", d.Network, d.Container, d.IfName)
	f.line("state", "%s", d.State)
	f.line("id", "%s", d.ID)
	f.line("runtime", "%s", d.Runtime)
	f.optional("source", d.Source)
	f.optional("records", d.StateDir)
	f.optional("namespace", d.Netns)
	f.line("created", "%s", d.Created.Format(time.RFC3339))
	for _, i := range d.Interfaces {
		f.line("interface", "%s", interfaceText(i))
	}
	for _, a := range d.Addresses {
		f.line(
			"address",
			"%s%s%s",
			a.Address,
			with(", gateway ", a.Gateway),
			mark(a.Recorded, a.Live),
		)
	}
	for _, r := range d.Routes {
		f.line(
			"route",
			"%s%s%s%s",
			r.Dst,
			with(" via ", r.Gateway),
			with(" table ", r.Table),
			mark(r.Recorded, r.Live),
		)
	}
	f.dns(d.DNS)
	for _, p := range d.Ports {
		f.line("port", "%s%s%s", p.Mapping, with(", ", p.Backend), mark(p.Recorded, p.Live))
	}
	f.line("version", "%s", d.CNIVersion)
	f.optional("args", d.Args)
	for _, name := range slices.Sorted(maps.Keys(d.Capabilities)) {
		f.line("capability", "%s=%s", name, d.Capabilities[name])
	}
	for _, p := range d.Plugins {
		f.line("plugin", "%s %s", p.Type, compact(p.Stdin))
	}
	for _, text := range d.Differences {
		f.line("differs", "%s", text)
	}
	for _, e := range d.Operations {
		f.line("operation", "%s", operationText(e))
	}
	return f.Flush()
}

// operationText describes an operation without its attachment.
func operationText(e logs.Entry) string {
	return topology.Clean(fmt.Sprintf("%s %s %s, %s, %s", e.Time.Format(time.RFC3339), e.Verb,
		e.Outcome, milliseconds(e.Milliseconds), strings.Join(logDetails(e), "  ")))
}

func interfaceText(i inspect.Interface) string {
	s := fmt.Sprintf(
		"%s, %s",
		i.Name,
		i.Place,
	) + with(
		", ",
		i.Kind,
	) + properties(
		i.MAC,
		i.MTU,
	) + with(
		", port of ",
		i.Master,
	)
	switch {
	case !i.Live:
		s += ", missing"
	case !i.Up:
		s += ", down"
	}
	return s
}

// mark describes how the record and the kernel differ.
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
