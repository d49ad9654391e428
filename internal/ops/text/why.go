package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/why"
)

// Why prints the answer to the question why packets stop. Unless verbose, it prints no commands,
// and after the first cause only further causes.
func Why(w io.Writer, r *why.Report, verbose bool) error {
	style := styleOf(w)
	fmt.Fprintf(w, "%s   %s\n", style.bold(r.Title), outcome(r))
	marks := map[string]string{"ok": "✓", "stopped": "✗", "unknown": "?"}
	for i, s := range r.Steps {
		if s.Assuming != "" && !verbose {
			continue
		}
		mark := marks[s.Result]
		if s.Assuming != "" {
			mark = "-"
		}
		name := s.Name
		if s.Direction == "reply" {
			name = "reply " + name
		}
		fmt.Fprintf(w, "%2d %s %-16s %-8s %s\n", i+1, style.mark(mark), name, s.Where, s.Text)
		if verbose && s.Evidence != "" {
			fmt.Fprintf(w, "%32s%s\n", "", style.dim("$ "+s.Evidence))
		}
	}
	for _, d := range r.Doubts {
		fmt.Fprintf(w, " %s %s\n", style.mark("?"), d)
	}
	for i, c := range r.Culprits {
		before := "\n"
		if i > 0 {
			before = "\nBehind it: "
		}
		fmt.Fprintf(w, "%s%s\n", before, style.bold(c.Text))
		for line := range strings.Lines(c.Fix) {
			fmt.Fprintf(w, "fix     %s\n", strings.TrimSpace(line))
		}
		if c.Advice != "" {
			fmt.Fprintf(w, "advice  %s\n", c.Advice)
		}
		if c.See != "" {
			fmt.Fprintf(w, "see     %s\n", c.See)
		}
	}
	_, err := fmt.Fprintf(w, "\nAssumed: %s.\n", strings.Join(r.Assumptions, "; "))
	return err
}

// outcome describes the verdict.
func outcome(r *why.Report) string {
	switch r.Verdict {
	case why.Delivered:
		return "delivered, and the reply too"
	case why.Left:
		return "leaves this host"
	case why.Limited:
		return "small packets only"
	case why.Stopped:
		at := slices.IndexFunc(r.Steps, func(s why.Step) bool { return s.Result == "stopped" })
		return fmt.Sprintf("STOPPED at step %d", at+1)
	}
	if n := len(r.Doubts); n > 0 {
		return fmt.Sprintf("not known: nothing stops it, except perhaps the objects marked ? (%d)", n)
	}
	return "not known"
}
