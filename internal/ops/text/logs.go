package text

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/ops/moment"
	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// Logs writes operations, one on each line. begins is the time of the oldest operation in the
// journal.
func Logs(w io.Writer, list []logs.Entry, begins, now time.Time) error {
	for _, e := range list {
		if err := Log(w, e, now); err != nil {
			return err
		}
	}
	if len(list) > 0 || begins.IsZero() {
		return nil
	}
	_, err := fmt.Fprintf(w, "no operation; the journal begins %s\n", moment.Format(begins, now))
	return err
}

// Log writes an operation as a line.
func Log(w io.Writer, e logs.Entry, now time.Time) error {
	mark := "✓"
	if e.Outcome == logs.Failed {
		mark = "✗"
	}
	line := fmt.Sprintf("%s  %s %-6s  %-28s  %9s  %s",
		moment.Format(e.Time, now), styleOf(w).mark(mark), topology.Clean(string(e.Verb)),
		topology.Clean(e.Subject()), milliseconds(e.Milliseconds),
		topology.Clean(strings.Join(logDetails(e), "  ")))
	_, err := fmt.Fprintln(w, strings.TrimRight(line, " "))
	return err
}

// logDetails returns the parts of a line after the duration.
func logDetails(e logs.Entry) (parts []string) {
	add := func(part string) {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if e.Outcome == logs.Failed {
		add(fmt.Sprintf("code %d: %s", e.Code, e.Error))
	} else {
		add(joinAddrs(e.Addresses))
	}
	if calls := calls(e.Plugins); calls != "" {
		add("(" + calls + ")")
	}
	if e.Kind == journal.Rollback || e.Kind == journal.Cleanup {
		add(string(e.Kind))
	}
	add(with("by ", e.Runtime))
	return parts
}

func joinAddrs(list []netip.Addr) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	return strings.Join(words, ",")
}

// calls returns the plugins of an operation with their times in milliseconds.
func calls(list []logs.Call) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.Type
		if p.Milliseconds > 0 {
			words[i] += fmt.Sprintf(" %.1f", p.Milliseconds)
		}
		if p.Code != 0 {
			words[i] += " failed"
		}
	}
	return strings.Join(words, ", ")
}

// milliseconds formats a duration.
func milliseconds(ms float64) string {
	if ms >= 10_000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
