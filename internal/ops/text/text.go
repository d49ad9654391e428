// Package text writes results and attachments for people to read.
package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
)

// Table writes rows in columns. The first row is the heading; empty cells become "-".
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Result writes what an ADD made, a line for each fact.
func Result(w io.Writer, r *cni.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			line("interface", "%s%s in %s", i.Name, properties(i), i.Sandbox)
		}
	}
	for _, ip := range r.IPs {
		gateway := ""
		if ip.Gateway.IsValid() {
			gateway = fmt.Sprintf(", gateway %s", ip.Gateway)
		}
		line("address", "%s%s", ip.Address, gateway)
	}
	for _, rt := range r.Routes {
		via := ""
		if rt.GW.IsValid() {
			via = fmt.Sprintf(" via %s", rt.GW)
		}
		line("route", "%s%s", rt.Dst, via)
	}
	for _, d := range []struct {
		what   string
		values []string
	}{{"nameserver", r.DNS.Nameservers}, {"domain", strings.Fields(r.DNS.Domain)}, {"search", r.DNS.Search}, {"options", r.DNS.Options}} {
		if len(d.values) > 0 {
			line(d.what, "%s", strings.Join(d.values, " "))
		}
	}
	for _, i := range r.Interfaces {
		if i.Sandbox == "" {
			line("host", "%s%s", i.Name, properties(i))
		}
	}
	return t.Flush()
}

func properties(i cni.Interface) string {
	var s string
	if i.MAC != "" {
		s += ", MAC " + i.MAC
	}
	if i.MTU != 0 {
		s += fmt.Sprintf(", MTU %d", i.MTU)
	}
	return s
}

// Attachments writes a table of attachments.
func Attachments(w io.Writer, list []inspect.Attachment) error {
	rows := [][]string{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "AGE", "RUNTIME", "STATE"}}
	for _, a := range list {
		var addrs []string
		if a.Result != nil {
			for _, ip := range a.Result.IPs {
				addrs = append(addrs, ip.Address.Addr().String())
			}
		}
		key := a.Attachment
		rows = append(rows, []string{
			key.Network, key.Container, key.IfName, strings.Join(addrs, ","), ipam.FormatAge(a.Age), a.Runtime, string(a.State),
		})
	}
	return Table(w, rows)
}
