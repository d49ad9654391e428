// Package text formats results, attachments and tables for people.
package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/table"
)

// facts writes a line with a name and a value for each fact.
type facts struct{ *tabwriter.Writer }

func newFacts(w io.Writer) facts { return facts{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (f facts) line(name, format string, args ...any) {
	fmt.Fprintf(f, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// optional writes a line unless the value is empty.
func (f facts) optional(name, value string) {
	if value != "" {
		f.line(name, "%s", value)
	}
}

func (f facts) dns(d cni.DNS) {
	f.optional("nameserver", strings.Join(d.Nameservers, " "))
	f.optional("domain", d.Domain)
	f.optional("search", strings.Join(d.Search, " "))
	f.optional("options", strings.Join(d.Options, " "))
}

// Result writes the result of an ADD.
func Result(w io.Writer, r *cni.Result) error {
	f := newFacts(w)
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			f.line("interface", "%s%s in %s", i.Name, properties(i.MAC, i.MTU), i.Sandbox)
		}
	}
	for _, ip := range r.IPs {
		f.line("address", "%s%s", ip.Address, with(", gateway ", ip.Gateway))
	}
	for _, rt := range r.Routes {
		f.line("route", "%s%s", rt.Dst, with(" via ", rt.GW))
	}
	f.dns(r.DNS)
	for _, i := range r.Interfaces {
		if i.Sandbox == "" {
			f.line("host", "%s%s", i.Name, properties(i.MAC, i.MTU))
		}
	}
	return f.Flush()
}

// with returns a value with a prefix, or "" for the zero value.
func with[T comparable](prefix string, value T) string {
	if value == *new(T) {
		return ""
	}
	return prefix + fmt.Sprint(value)
}

func properties(mac string, mtu int) string { return with(", MAC ", mac) + with(", MTU ", mtu) }

// AttachmentColumns are the columns of a table of attachments that it does not always have.
type AttachmentColumns struct {
	Pools map[cni.Attachment][]string // in a cluster; without any, the table has no such column
	Wide  bool                        // the namespace, the plugins, and where the record is
}

// Attachments writes a table of attachments.
func Attachments(w io.Writer, list []inspect.Attachment, more AttachmentColumns) error {
	rows := [][]string{
		{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "AGE", "RUNTIME", "STATE"},
	}
	if len(more.Pools) > 0 {
		rows[0] = append(rows[0], "POOLS")
	}
	if more.Wide {
		rows[0] = append(rows[0], "NAMESPACE", "PLUGINS", "RECORD")
	}
	for _, a := range list {
		var addrs []string
		if a.Result != nil {
			for _, ip := range a.Result.IPs {
				addrs = append(addrs, ip.Address.Addr().String())
			}
		}
		key := a.Attachment
		row := []string{key.Network, key.Container, key.IfName, strings.Join(addrs, ","),
			ipam.FormatAge(a.Age), a.Runtime, string(a.State)}
		if len(more.Pools) > 0 {
			row = append(row, strings.Join(more.Pools[key], ","))
		}
		if more.Wide {
			row = append(row, a.Netns, strings.Join(pluginTypes(a.List), ","),
				cmp.Or(a.StateDir, a.Source))
		}
		rows = append(rows, row)
	}
	return table.Write(w, rows)
}

// pluginTypes returns the types of the plugins of a list, which may be nil.
func pluginTypes(l *cni.List) (types []string) {
	if l == nil {
		return nil
	}
	for _, p := range l.Plugins {
		types = append(types, p.Type)
	}
	return types
}
