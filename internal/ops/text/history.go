package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/history"
	"github.com/tenon-cni/tenon/internal/ops/moment"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// History writes who had an address, a port, an interface or a name at which time.
func History(w io.Writer, a *history.Answer, zone *time.Location) error {
	now := a.Now.In(zone)
	if err := intervals(w, a.Intervals, now); err != nil {
		return err
	}
	var lines []string
	if len(a.Intervals) == 0 {
		text := "no attachment had " + string(a.Kind) + " " + a.Subject
		switch a.Kind {
		case history.Name:
			text = "no attachment of " + a.Subject
		case history.Host:
			text = "no attachment"
		}
		if !a.At.IsZero() {
			text += " at " + moment.Format(a.At, now)
		}
		lines = append(lines, text)
	}
	if near := neighbours(a, now); near != "" {
		lines = append(lines, near)
	}
	if a.Begins.IsZero() {
		lines = append(lines, "the journal is empty")
	} else {
		lines = append(lines, "journal begins "+a.Begins.In(zone).Format(time.DateTime))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, " "+topology.Clean(line)); err != nil {
			return err
		}
	}
	return nil
}

// intervals writes attachments, one on each line.
func intervals(w io.Writer, list []history.Interval, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, i := range list {
		fmt.Fprintf(t, " %s\tnetwork %s, %s\t%s\t%s\n", topology.Clean(cmp.Or(i.Container, "-")),
			topology.Clean(i.Network), topology.Clean(i.IfName), span(&i, now),
			topology.Clean(ending(&i)))
	}
	return t.Flush()
}

// neighbours describes the attachments before and after the time of the query.
func neighbours(a *history.Answer, now time.Time) string {
	var parts []string
	for _, x := range []struct {
		name string
		*history.Interval
	}{{"before", a.Before}, {"after", a.After}} {
		if x.Interval != nil {
			parts = append(parts, fmt.Sprintf("%-6s  %s  %s", x.name, x.Container, span(x.Interval, now)))
		}
	}
	return strings.Join(parts, "        ")
}

// span writes the begin and the end of an interval. "~" marks an inferred time.
func span(i *history.Interval, now time.Time) string {
	point := func(t time.Time, c history.Certainty) string {
		mark := ""
		if c == history.Inferred {
			mark = "~"
		}
		return mark + moment.Format(t, now)
	}
	from, to := "before the journal", "now"
	if !i.From.IsZero() {
		from = point(i.From, i.FromCertainty)
	}
	switch {
	case !i.To.IsZero():
		to = point(i.To, i.ToCertainty)
	case i.Ended == history.Unknown:
		to = "?"
	}
	return from + " – " + to
}

// ending describes the end of an interval and its runtime.
func ending(i *history.Interval) string {
	var parts []string
	switch i.Ended {
	case history.Open:
	case history.Unknown:
		parts = append(parts, "the end is not recorded")
	default:
		parts = append(parts, "ended by "+string(i.Ended))
	}
	if i.Runtime != "" {
		parts = append(parts, i.Runtime)
	}
	if i.Certainty == history.Inferred {
		parts = append(parts, "inferred")
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
